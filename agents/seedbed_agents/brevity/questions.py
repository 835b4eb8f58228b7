"""The questions of the brevity agent: short, factual, of many kinds, each with the words of a right answer.

``TRAINING`` questions earn rewards. ``HELD_OUT`` questions never do: they only measure the unperturbed live
model, before and after. A test holds the two apart. A keyword is written in lower case; any one of them
will do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """One question; ``id`` is the group under which the server compares its rewards."""

    id: str
    text: str
    keywords: tuple[str, ...]


def _questions(table: str) -> tuple[Question, ...]:
    """Read lines of ``id | question | keyword, keyword``."""
    rows = (tuple(cell.strip() for cell in line.split("|")) for line in table.strip().splitlines())
    return tuple(
        Question(id=name, text=text, keywords=tuple(word.strip() for word in words.split(",")))
        for name, text, words in rows
    )


TRAINING = _questions("""
    capital-france    | What is the capital of France?                            | paris
    capital-japan     | What is the capital of Japan?                             | tokyo
    capital-china     | What is the capital of China?                             | beijing
    capital-egypt     | What is the capital of Egypt?                             | cairo
    capital-canada    | What is the capital of Canada?                            | ottawa
    capital-india     | What is the capital of India?                             | delhi
    capital-ireland   | What is the capital of Ireland?                           | dublin
    continent-brazil  | On which continent is Brazil?                             | south america
    continent-japan   | On which continent is Japan?                              | asia
    continent-india   | On which continent is India?                              | asia
    language-brazil   | Which language is spoken in Brazil?                       | portuguese
    language-japan    | Which language is spoken in Japan?                        | japanese
    language-italy    | Which language is spoken in Italy?                        | italian
    colour-sky        | What colour is the sky on a clear day?                    | blue
    colour-tomato     | What colour is a ripe tomato?                             | red
    colour-chocolate  | What colour is chocolate?                                 | brown
    symbol-gold       | What is the chemical symbol for gold?                     | au
    formula-water     | What is the chemical formula of water?                    | h2o, h₂o
    gas-plants        | Which gas do plants take in from the air?                 | carbon dioxide, co2
    water-boils       | At what temperature in degrees Celsius does water boil?   | 100
    force-down        | What force pulls objects towards the Earth?               | gravity, gravitational
    star-closest      | What is the closest star to the Earth?                    | sun, proxima
    planet-red        | Which planet is known as the Red Planet?                  | mars
    organ-blood       | Which organ pumps blood through the body?                 | heart
    organ-breathing   | Which organ do we use to breathe?                         | lung, lungs
    organ-seeing      | Which organ do we use to see?                             | eye, eyes
    organ-smelling    | What do we use to smell?                                  | nose, nostrils
    animal-milk       | Which animal gives us milk on farms?                      | cow, cows
    animal-calf       | What is a baby cow called?                                | calf
    animal-trunk      | Which animal has a long trunk?                            | elephant, elephants
    legs-dog          | How many legs does a dog have?                            | four, 4
    legs-spider       | How many legs does a spider have?                         | eight, 8
    days-week         | How many days are in a week?                              | seven, 7
    hours-day         | How many hours are in a day?                              | twenty-four, 24
    sides-triangle    | How many sides does a triangle have?                      | three, 3
    sides-hexagon     | How many sides does a hexagon have?                       | six, 6
    letters-alphabet  | How many letters are in the English alphabet?             | twenty-six, 26
    fingers-hand      | How many fingers are on one hand?                         | five, 5
    month-first       | What is the first month of the year?                      | january
    season-coldest    | Which season is the coldest?                              | winter
    season-spring     | Which season comes after spring?                          | summer
    opposite-hot      | What is the opposite of hot?                              | cold
    opposite-big      | What is the opposite of big?                              | small, little, tiny
    opposite-day      | What is the opposite of day?                              | night
    opposite-fast     | What is the opposite of fast?                             | slow
    opposite-black    | What is the opposite of black?                            | white
    opposite-open     | What is the opposite of open?                             | closed, close, shut
    opposite-early    | What is the opposite of early?                            | late
    sum-two-two       | What is 2 plus 2?                                         | four, 4
    product-three     | What is 3 times 3?                                        | nine, 9
    writer-romeo      | Who wrote Romeo and Juliet?                               | shakespeare
    relativity        | Who developed the theory of relativity?                   | einstein
    telephone         | Who invented the telephone?                               | bell
    penicillin        | Who discovered penicillin?                                | fleming
    river-africa      | What is the longest river in Africa?                      | nile
    mountain-highest  | What is the highest mountain in the world?                | everest
    eiffel-tower      | In which country is the Eiffel Tower?                     | france
    statue-liberty    | In which city is the Statue of Liberty?                   | new york
    money-japan       | What is the currency of Japan?                            | yen
    money-us          | What is the currency of the United States?                | dollar, dollars
    made-bread        | What is bread made from?                                  | flour, wheat
    made-paper        | What is paper made from?                                  | wood, pulp, trees
    made-cheese       | What is cheese made from?                                 | milk
    cut-paper         | What do we use to cut paper?                              | scissors
""")

HELD_OUT = _questions("""
    capital-russia    | What is the capital of Russia?                            | moscow
    capital-australia | What is the capital of Australia?                         | canberra
    capital-kenya     | What is the capital of Kenya?                             | nairobi
    continent-egypt   | On which continent is Egypt?                              | africa
    language-mexico   | Which language is spoken in Mexico?                       | spanish
    colour-grass      | What colour is grass?                                     | green
    gas-breathing     | Which gas do humans need to breathe?                      | oxygen
    plants-food       | What process do plants use to make food from sunlight?    | photosynthesis
    planet-largest    | What is the largest planet in the solar system?           | jupiter
    organ-thinking    | Which organ do we use to think?                           | brain
    organ-hearing     | Which organ do we use to hear?                            | ear, ears
    animal-honey      | Which insect makes honey?                                 | bee, bees, honeybee
    animal-pouch      | Which animal carries its baby in a pouch?                 | kangaroo, kangaroos
    animal-kitten     | What is a baby cat called?                                | kitten
    seconds-minute    | How many seconds are in a minute?                         | sixty, 60
    sides-square      | How many sides does a square have?                        | four, 4
    month-last        | What is the last month of the year?                       | december
    season-summer     | Which season comes after summer?                          | autumn, fall
    opposite-up       | What is the opposite of up?                               | down
    opposite-happy    | What is the opposite of happy?                            | sad, unhappy
    opposite-left     | What is the opposite of left?                             | right
    opposite-light    | What is the opposite of light?                            | dark, darkness
    mona-lisa         | Who painted the Mona Lisa?                                | leonardo, vinci
    moon-first        | Who was the first person to walk on the Moon?             | armstrong
    writer-prejudice  | Who wrote Pride and Prejudice?                            | austen
    ocean-largest     | What is the largest ocean on Earth?                       | pacific
    desert-africa     | What is the largest desert in Africa?                     | sahara
    pyramids          | In which country are the pyramids of Giza?                | egypt
    money-uk          | What is the currency of the United Kingdom?               | pound, pounds, sterling
    money-india       | What is the currency of India?                            | rupee, rupees
    made-wine         | What is wine made from?                                   | grape, grapes
    shape-ball        | What shape is a ball?                                     | sphere, spherical, round
""")
