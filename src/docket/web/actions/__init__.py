"""Every change that the dashboard makes. Pages and the API call the same functions; each change is
judged by the visitor's role, and written down."""

from .action import Action, ActionResult, carry_out, check_role
from .letter_actions import LETTER_ACTIONS
from .rule_actions import RULE_ACTIONS
from .task_actions import TASK_ACTIONS

ACTIONS: dict[str, Action] = {action.path: action for action in (*TASK_ACTIONS, *LETTER_ACTIONS, *RULE_ACTIONS)}

__all__ = ["ACTIONS", "Action", "ActionResult", "carry_out", "check_role"]
