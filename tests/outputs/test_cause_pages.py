"""The pages of causes as HTML: all of them, with links that lead somewhere, and nothing for an id that is none."""

from __future__ import annotations

import re

import pytest

from hangwatch.causes.knowledge import SECTIONS, list_pages
from hangwatch.outputs.html.cause_page import fold_page, name_cause, render_cause_page


@pytest.mark.parametrize("cause", list_pages())
def test_a_page_is_whole_and_leads_to_the_web_or_to_other_causes(cause: str) -> None:
    """Every section is there; no link leads to a file of the repository, which the agent does not serve."""
    page = render_cause_page(cause)
    assert page is not None
    assert re.findall("<h2>(.*?)</h2>", page) == list(SECTIONS)
    addresses = re.findall(r'href="([^"]*)"', page)
    assert [one for one in addresses if not one.startswith("https://") and one not in list_pages()] == []
    assert page.count("<a ") == page.count("</a>") == len(addresses)


@pytest.mark.parametrize("cause", list_pages())
def test_a_report_holds_what_it_says_of_the_cause(cause: str) -> None:
    """Folded away, in a file that has no pages beside it: no link leads to one."""
    folded = fold_page(cause)
    assert folded.count("<h3>") == 3
    assert "href" not in folded


@pytest.mark.parametrize("cause", ["", "no-such-cause", "../security", "<b>", "README"])
def test_what_is_no_cause_has_no_page(cause: str) -> None:
    """Neither a page nor a link to one: an incident may be of another version, and a request of anybody."""
    assert render_cause_page(cause) is None
    assert fold_page(cause) == ""
    assert "href" not in name_cause(cause, "")
