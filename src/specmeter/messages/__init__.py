"""What is said: a code with values, put into words last, from catalogues that are data."""

from specmeter.messages.message import LANGUAGES, Message, Value, Words, with_own, words

__all__ = ["LANGUAGES", "Message", "Value", "Words", "with_own", "words"]
