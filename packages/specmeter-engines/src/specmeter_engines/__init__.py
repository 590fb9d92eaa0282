"""Engines besides llama.cpp: a room each, whose extra brings the engine itself."""
