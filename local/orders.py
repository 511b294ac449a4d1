"""A made-up CSV of orders, as large as one likes and always the same: mixed types, dirty values, a target.

About 22 % of the orders are returned; how likely depends on the category, the price, the discount, the age of the
customer, the payment, the days until delivery and some of their combinations. 0.5 % of the records come twice, one
in 10,000 has a field too few or too many, and free texts contain delimiters, quotes and line ends.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import duckdb

HEADER = (
    "order_id,customer_id,ordered_on,delivered_on,category,region,payment,device,price,quantity,discount,age,"
    "rating,gift,newsletter,coupon,comment,returned\n"
)
CHUNK_ROWS = 250_000
DUPLICATE_EVERY, RAGGED_EVERY = 200, 10_000

_U = "((hash(i * 64 + {salt}) >> 11)::DOUBLE / 9007199254740992.0)"


def _u(salt: int) -> str:
    """A number from 0 to 1 that depends on the row and the salt."""
    return _U.format(salt=salt)


def _pick(salt: int, *words: str) -> str:
    listed = ", ".join("'" + word.replace("'", "''") + "'" for word in words)
    return f"([{listed}])[1 + floor({_u(salt)} * {len(words)})::INT]"


_VALUES = f"""
SELECT i,
  date '2023-01-01' + floor({_u(1)} * 900)::INT AS ordered, floor({_u(2)} * 14 + 1)::INT AS days,
  floor({_u(3)} * 12)::INT AS category, floor({_u(4)} * 8)::INT AS region, floor({_u(5)} * 5)::INT AS payment,
  floor({_u(6)} * 3)::INT AS device, round(exp({_u(7)} * 4.5 + 1), 2) AS price,
  1 + floor({_u(8)} * 5)::INT AS quantity,
  floor({_u(9)} * 8)::INT * 5 AS discount, 18 + floor({_u(10)} * 70)::INT AS age,
  1 + floor({_u(11)} * 5)::INT AS rating,
  {_u(12)} < 0.15 AS gift
FROM (SELECT unnest(range($first, $last)) AS i)
"""

_RETURNED = f"""
{_u(20)} < 1 / (1 + exp(-(-2.35 + 0.22 * (category % 5) + 0.35 * ln(price) / 2 - 0.25 * (rating - 3)
  + 0.02 * discount * (category % 3) + 0.06 * (days - 5)
  + CASE WHEN age < 30 THEN 0.5 WHEN age > 65 THEN -0.3 ELSE 0 END
  + CASE payment WHEN 0 THEN 0.6 WHEN 3 THEN -0.4 ELSE 0 END - CASE WHEN gift THEN 0.5 ELSE 0 END
  + CASE WHEN device = 1 AND price > 60 THEN 0.4 ELSE 0 END - 1.1)))
"""

_DIRTY_CATEGORY = f"""
CASE floor({_u(30)} * 40)::INT WHEN 0 THEN upper(name) WHEN 1 THEN name || ' ' ELSE name END
"""

_RECORD = f'''
SELECT concat_ws(',', 100000000 + i, 1 + floor({_u(40)} * 800000)::BIGINT,
  CASE WHEN {_u(41)} < 0.001 THEN '2023-02-30' WHEN {_u(41)} < 0.3 THEN strftime(ordered, '%d/%m/%Y')
    ELSE strftime(ordered, '%Y-%m-%d') END,
  strftime(ordered + days, '%Y-%m-%d'),
  {_DIRTY_CATEGORY},
  ([ 'north','south','east','west','centre','islands','abroad','unknown'])[region + 1],
  ([ 'invoice','card','wallet','transfer','cash'])[payment + 1], ([ 'phone','desktop','tablet'])[device + 1],
  CASE WHEN {_u(42)} < 0.02 THEN 'N/A' WHEN {_u(42)} < 0.3 THEN '$' || price ELSE price::VARCHAR END,
  quantity, discount || CASE WHEN {_u(43)} < 0.5 THEN '%' ELSE '' END,
  CASE WHEN {_u(44)} < 0.05 THEN '' ELSE age::VARCHAR END, rating,
  CASE floor({_u(45)} * 3)::INT WHEN 0 THEN CASE WHEN gift THEN 'yes' ELSE 'no' END
    WHEN 1 THEN CASE WHEN gift THEN 'Y' ELSE 'N' END ELSE CASE WHEN gift THEN 'true' ELSE 'false' END END,
  CASE WHEN {_u(46)} < 0.5 THEN 'true' ELSE 'false' END, lpad(floor({_u(47)} * 100000)::INT::VARCHAR, 6, '0'),
  CASE floor({_u(48)} * 30)::INT
    WHEN 0 THEN '"quick, and well packed"' WHEN 1 THEN '"he said ""fine"""'
    WHEN 2 THEN '"two' || chr(10) || 'lines"'
    WHEN 3 THEN '良い' WHEN 4 THEN '=1+1' ELSE {_pick(49, "good", "late", "as described", "too small", "")} END,
  CASE WHEN {_u(50)} < 0.002 THEN 'maybe' WHEN {_u(50)} < 0.01 THEN '' WHEN {_RETURNED} THEN 'yes' ELSE 'no' END)
  || CASE WHEN i % {RAGGED_EVERY} = 7777 THEN ',surplus' ELSE '' END AS record
FROM (SELECT *, ([ 'books','clothes','shoes','toys','garden','kitchen','sports','music',
  'office','health','tools','food'])
  [category + 1] AS name FROM ({_VALUES}))
ORDER BY i
'''


def records(rows: int) -> Iterator[bytes]:
    """The file in blocks: a header, and `rows` records of which 0.5 % are repeated at once."""
    connection = duckdb.connect()
    yield HEADER.encode()
    for first in range(0, rows, CHUNK_ROWS):
        chunk = {"first": first, "last": min(first + CHUNK_ROWS, rows)}
        found = connection.execute(_RECORD, chunk).fetchnumpy()["record"].tolist()
        for place in range(DUPLICATE_EVERY - 1, len(found), DUPLICATE_EVERY):
            found[place - 1] = found[place]
        yield ("\n".join(found) + "\n").encode()


def write(rows: int, target: Path) -> None:
    with target.open("wb") as file:
        for block in records(rows):
            file.write(block)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    write(options.rows, options.target)
