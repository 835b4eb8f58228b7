"""The engine: the gRPC service that keeps the live model.

One process tree per model replica: SGLang in-process, unforked, extended through its own plugin entry
point, and a grpc.aio server in front of it. It knows weights, perturbations, slots, updates and digests;
it does not know episodes, rewards, users or prompts.

A request comes in at `service`, which writes its perturbation into SGLang's cache namespace (`address`)
and hands it to SGLang's own handlers (`openai`, `generate`). In the scheduler process the plugin
(`plugin`) has laid the model out (`layout`), reads the namespaces of every batch, finds a slot for each
seed (`slots`) and adds the perturbation to each row (`perturb`). An update comes in at the same service,
crosses over as our own request type (`control`) and is one method of the scheduler (`operations`): retract,
apply (`step`, `update`; `anchor` where it decays towards the base), digest (`digest`), flush, go on. SGLang
is imported in this package only.
"""
