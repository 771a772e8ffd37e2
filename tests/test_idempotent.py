"""What the page on idempotent receivers says, done by holders that outlive their leases."""

from __future__ import annotations

from typing import Any

import pytest
from django.dispatch import Signal, receiver

from django_recheck import LockLost, Outcome, outage, recheck, store
from tests.app.models import Remote
from tests.servers import apart
from tests.test_docs import DOCS, blocks
from tests.test_runner import KEY, Subject, elsewhere, end_lease, taken_over

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def write() -> Any:
    """The fenced write of the page."""
    (text,) = (b for b in blocks(DOCS / "howto/idempotent.md", "python") if "def write" in b)
    names: dict[str, Any] = {}
    exec(text.replace("from shop.models", "from tests.app.models"), names)
    return names["write"]


def stored() -> int:
    return Remote.objects.get(key=1).value


def test_a_fenced_write_of_a_holder_that_was_overtaken_is_refused(write: Any) -> None:
    subject = Subject()

    def overtaken(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            write(1, 10, int(taken_over().fence))
            write(1, 5, recheck_pass.fence)

    subject.does(overtaken)
    assert subject.send() is Outcome.LEASE_LOST
    assert stored() == 10, "the other one's fence is higher"


def test_a_fenced_write_goes_through_again_and_again(write: Any) -> None:
    subject = Subject()

    def twice(recheck_pass: Any) -> None:
        write(1, len(subject.seen), recheck_pass.fence)
        if len(subject.seen) == 1:
            elsewhere(subject.send)

    subject.does(twice)
    assert subject.send() is Outcome.RAN
    assert stored() == 2, "a further pass of the same hold, with the same fence"
    store.current().client.flushdb()
    assert subject.send() is Outcome.RAN
    assert stored() == 3, "fences grow after a flush, too"


def test_ensure_held_stands_before_a_write_that_has_no_fence() -> None:
    subject, written = Subject(), []

    def overtaken(recheck_pass: Any) -> None:
        if len(subject.seen) == 1:
            end_lease()
            recheck_pass.ensure_held()
            written.append("nobody has taken it over: it is ours again")
            taken_over()
            lost.append(recheck_pass.lost)
            with pytest.raises(LockLost):
                recheck_pass.ensure_held()
            lost.append(recheck_pass.lost)

    lost: list[bool] = []
    subject.does(overtaken)
    assert subject.send() is Outcome.LEASE_LOST
    assert len(written) == 1
    assert lost == [False, True], "this process doesn't know before it asks"


def test_a_pass_without_its_lock_has_a_fence_that_is_refused(write: Any, settings: Any) -> None:
    probe = Signal()

    @receiver(probe)
    @recheck(name=KEY.receiver, key=lambda **_: 1)
    def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
        write(1, 7, recheck_pass.fence)

    write(1, 6, 1)
    with apart(settings) as server:
        server.end()
        answers: Any = probe.send(sender=None)
        assert answers == [(held, Outcome.UNLOCKED)]
        assert stored() == 6
        server.start()
        outage.breaker.close()
        probe.send(sender=None)
    assert stored() == 7
