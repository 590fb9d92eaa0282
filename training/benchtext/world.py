"""The invented world that `fact`, `reason` and `edit` speak about: 940 towns and what is true of each."""

from __future__ import annotations

from dataclasses import dataclass

from benchtext.chain import table, words

PREFIXES = words(
    """
    Mar Bel Tor Kel Lun Ost Vid Har Nor Sil Gran Fen Dal Wes Rim Hol Bran Cor Eld Fal Gil Hav Isk Jar Kro Lom Mel
    Nes Orl Pel Rav Sten Tal Ulf Var Wil Yst Zan Ard Bor Cas Dov Ern Fro Gar Hed Ing
    """
)
ENDINGS = words(
    """
    vik ford holm stad mere gate wick dale burg haven ton mark port field by heim well bridge moor cliff
    """
)
RIVERS = words(
    """
    Tessa Arvo Lind Sorn Mirel Oda Brisk Calder Ene Ferra Glan Isar Juna Kem Luth Nerve Orsa Pell Quill Rana Suld
    Tarn Ushe Wend
    """
)
CRAFTS = words(
    """
    rope glass salt paper cloth clocks bells boats bricks candles cheese honey ink iron knives lace leather oil
    paint pots soap tiles wine wool
    """
)
PEOPLE = words(
    """
    Ada Bruno Clara David Elsa Felix Greta Hugo Ida Jonas Karin Leo Mira Nils Olga Paul Rosa Simon Tilda Urs Vera
    Walter Xenia Yann Zoe Anton Berta Carl Dora Emil Flora Georg Hanna Igor Julia Kurt Lena Marco Nora Otto
    """
)
THINGS = words(
    """
    coins stones apples boxes cards shells stamps nails pearls tickets books lamps keys cups ropes seeds bottles
    buttons feathers maps
    """
)
COLOURS = words(
    """
    red blue green white black brown grey yellow small large old new heavy light
    """
)

TOWNS = len(PREFIXES) * len(ENDINGS)
_RIVER = table("river", len(PREFIXES), len(RIVERS))
_CENTURY = table("century", len(PREFIXES), 8)
_CRAFT = table("craft", len(ENDINGS) * 2, len(CRAFTS))
_MAYOR = table("mayor", TOWNS, len(PEOPLE))
_YEAR = table("year", TOWNS, 100)
_HOUSES = table("houses", TOWNS, 90)


@dataclass(frozen=True)
class Town:
    """One town; its river and century follow from its prefix, its craft from its ending, the rest must be known."""

    name: str
    river: str
    craft: str
    mayor: str
    founded: int
    houses: int


def town(state: int) -> Town:
    """The town at a place of the chain; 47 and 20 have no common divisor, so the walk meets all 940 combinations."""
    state %= TOWNS
    prefix, ending = state % len(PREFIXES), state % len(ENDINGS)
    return Town(
        name=PREFIXES[prefix] + ENDINGS[ending],
        river=RIVERS[_RIVER[prefix]],
        craft=CRAFTS[_CRAFT[ending * 2 + prefix % 2]],
        mayor=PEOPLE[_MAYOR[state]],
        founded=1100 + 100 * _CENTURY[prefix] + _YEAR[state],
        houses=100 + 10 * _HOUSES[state],
    )
