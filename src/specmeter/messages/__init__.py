"""What is said: a code with values, put into words last, from catalogues that are data."""

from specmeter.messages.catalogues import LANGUAGES
from specmeter.messages.message import Message, Value, Words, with_own, words

__all__ = ["LANGUAGES", "Message", "Value", "Words", "with_own", "words"]
