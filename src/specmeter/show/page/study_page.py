"""Studies as one page: what their numbers are, what they say about each claim, then figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.show.page.page import render
from specmeter.show.words import LANGUAGES, Language
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.show.charts import Chart
    from specmeter.show.page.study_document import StudyDocument


def study_page(
    documents: Sequence[StudyDocument],
    languages: Sequence[Language] = LANGUAGES,
    *,
    index: str | None = None,
    downloads: Sequence[tuple[str, str]] = (),
) -> str:
    """The page of one study or of several; names of charts must differ, so each of several needs its prefix.

    `index` links to the page of all studies, `downloads` (name, size) lie beside the page.
    """
    return render(
        "study.html",
        languages,
        charts_of(documents),
        title=f"{printable(documents[0].title if len(documents) == 1 else 'Studies')} · specmeter",
        studies=documents,
        index=index,
        downloads=downloads,
    )


def charts_of(documents: Sequence[StudyDocument]) -> dict[str, Chart]:
    """The charts of all studies by name."""
    return {name: chart for document in documents for name, chart in document.charts.items()}
