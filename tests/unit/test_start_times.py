"""When to come back while an engine starts: by the last start, and by how long this one has run."""

from seedbed_server.gateway.start_times import FIRST_SECONDS, StartTimes


def test_before_the_first_start_a_usual_one_is_told() -> None:
    starts = StartTimes()
    starts.begin(100.0)
    assert starts.seconds_left(now=100.0) == FIRST_SECONDS
    assert starts.seconds_left(now=110.5) == 20


def test_the_last_start_tells_what_is_left_of_this_one() -> None:
    starts = StartTimes()
    starts.begin(0.0)
    starts.end(ready=True, now=16.2)
    starts.begin(100.0)
    assert [starts.seconds_left(now=100.0 + passed) for passed in (0, 6, 12, 16)] == [17, 11, 5, 4]


def test_one_that_takes_longer_than_the_last_is_asked_about_less_and_less_often() -> None:
    starts = StartTimes()
    starts.begin(0.0)
    starts.end(ready=True, now=10.0)
    starts.begin(0.0)
    assert [starts.seconds_left(now=passed) for passed in (12, 40, 100, 4000)] == [3, 10, 25, 120]


def test_one_that_is_down_has_its_pause_and_a_whole_start_before_it() -> None:
    starts = StartTimes()
    starts.begin(0.0)
    starts.end(ready=True, now=20.0)
    assert starts.seconds_left(4.0) == 24
    starts.begin(50.0)
    starts.end(ready=False, now=350.0)
    assert starts.seconds_left(15.0) == 35, "a start that failed tells nothing"


def test_it_is_at_least_a_second_and_at_most_two_minutes() -> None:
    starts = StartTimes()
    starts.begin(0.0)
    starts.end(ready=True, now=0.01)
    assert starts.seconds_left() == 1
    starts.begin(0.0)
    starts.end(ready=True, now=900.0)
    assert starts.seconds_left() == 120
