"""One way to show things: tables, figures and text, and the terminal, pages and files that they are shown in."""
