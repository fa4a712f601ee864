"""The lines of a result file, and what can be wrong with them: faults that no provider's own shape matters for."""

from __future__ import annotations

from typing import Any

import orjson

BOM = b"\xef\xbb\xbf"


class ResultLines:
    """Collects lines in the order given; `id_key` is the member that carries a record's id."""

    def __init__(self, id_key: str) -> None:
        self._id_key = id_key
        self._lines: list[bytes] = []
        self._swapped: list[int] = []
        self._truncated = b""
        self._bom = False

    def add(self, line: dict[str, Any]) -> None:
        self._lines.append(orjson.dumps(line) + b"\n")

    def add_with(self, fault: str, line: dict[str, Any], stranger: str) -> bool:
        """Add a line under a fault of lines; one that is none of them changes nothing. `stranger` is the id for
        `unknown_id`. False if the line was cut off and is to be the file's last."""
        encoded = orjson.dumps(line)
        if fault == "truncated_last_line" and not self._truncated:
            self._truncated = encoded[: len(encoded) * 2 // 3]
            return False
        if fault == "swapped_id":
            self._swapped.append(len(self._lines))
        self._lines.append(encoded + (b"\r\n" if fault == "crlf" else b"\n"))
        if fault == "duplicate_same":
            self._lines.append(encoded + b"\n")
        elif fault == "unknown_id":
            self.add({**line, self._id_key: stranger})
        elif fault == "garbage_line":
            self._lines.append(b'<html><body>upstream connect error "\xff\xfe</body></html>\n')
        elif fault == "blank_lines":
            self._lines.append(b"\n  \n")
        elif fault == "bom":
            self._bom = True
        return True

    def body(self) -> bytes:
        """The file's bytes; empty means that there is no such file."""
        text = b"".join([*self._with_swaps(), self._truncated])
        return BOM + text if self._bom and text else text

    def _with_swaps(self) -> list[bytes]:
        """Exchange ids with the next line that holds a record."""
        lines = self._lines.copy()
        records = [at for at, line in enumerate(lines) if line.startswith(b"{")]
        place = {at: number for number, at in enumerate(records)}
        key = self._id_key
        for at in self._swapped:
            other = records[(place[at] + 1) % len(records)]
            mine, theirs = orjson.loads(lines[at]), orjson.loads(lines[other])
            mine[key], theirs[key] = theirs[key], mine[key]
            lines[at], lines[other] = orjson.dumps(mine) + b"\n", orjson.dumps(theirs) + b"\n"
        return lines
