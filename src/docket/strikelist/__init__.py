"""Rules that block tasks, shared by every process of a docket."""

from .instructions import LiteralOperator, Operator, Restore, Strike, StrikeInstruction
from .strikelist import StrikeList

__all__ = ["LiteralOperator", "Operator", "Restore", "Strike", "StrikeInstruction", "StrikeList"]
