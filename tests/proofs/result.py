"""What a proof comes to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProofResult:
    """One line of ``make prove``.

    Attributes:
        proof: Its name.
        cases: How many were tried.
        failures: One text for each way in which it failed, with the smallest case found.
        details: What else there is to see, as text of some lines.
    """

    proof: str
    cases: int
    failures: list[str] = field(default_factory=list)
    details: str = ""
