"""Strikes: rules that cancel matching tasks, shared by all processes of a docket."""

from .instructions import LiteralOperator, Operator, Restore, Strike, StrikeInstruction
from .strikelist import StrikeList

__all__ = ["LiteralOperator", "Operator", "Restore", "Strike", "StrikeInstruction", "StrikeList"]
