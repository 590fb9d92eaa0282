"""What people see and share: pages, charts, figures and tables of runs, in English and Chinese.

Nothing is computed here. Numbers come from `reading`, `comparison` and `probe` as estimates; this room chooses which of
them to show, formats them (`numbers`) and says in words what they mean (`words`).
"""
