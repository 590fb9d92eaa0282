"""llama.cpp as a server: embedded, native, or on other machines; its options, logs and programs."""
