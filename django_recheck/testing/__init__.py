"""For the test suites of projects whose receivers are decorated; unittest and pytest alike.

Nothing of it is needed in production, and nothing depends on pytest.
"""

from .during import event_during_pass
from .overrides import immediate, isolated, override
from .owed import Recorded, drain, recorded

__all__ = [
    "Recorded",
    "drain",
    "event_during_pass",
    "immediate",
    "isolated",
    "override",
    "recorded",
]
