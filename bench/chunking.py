"""How fast documents are cut into chunks, beside semantic-text-splitter, and that time grows with the text only.

    python bench/chunking.py [--quick]

The texts are made here from a fixed seed: Markdown in eight languages and scripts, with tables, long words,
Windows line ends and emoji. MB are 10^6 bytes of UTF-8 per second of CPU, the best of three runs.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Callable, Iterable, Sized
from pathlib import Path

from semantic_text_splitter import MarkdownSplitter, TextSplitter

sys.path.insert(0, str(Path(__file__).parent.parent / "lambdas"))

from kinds.document.reading.chunk import chunk

QUICK = "--quick" in sys.argv
SIZE, OVERLAP = 1000, 200  # characters
DOCUMENTS, DOCUMENT, LONG = (1, 20_000, 20_000) if QUICK else (30, 70_000, 2_000_000)  # lengths in characters
GROWN = 10**4 if QUICK else 10**6
SENTENCES = {
    "es": "La cola guarda el mensaje hasta que alguien lo lee.|¿Y si nadie lo lee? Entonces, p. ej., caduca.|"
    "El Sr. Pérez envió ayer tres documentos; hoy, ninguno.|¡Qué lástima! —dijo ella, y cerró la puerta.",
    "en": "A job that is finished is never run again.|Dr. Jones waited for two hours, and then for another one.|"
    "It costs about 3.5 cents per page, e.g. for a book.|Nobody asks twice: the answer comes by itself.",
    "zh": "今天的天气很好，我们决定一起去公园散步。|他问：「你明天有时间吗？」|如果下雨，就改天再去吧！",
    "ja": "この文書は三つの部分から成り立っています。|明日は晴れるでしょうか。|とても面白い本でした！",
    "ko": "작업이 끝나면 알림이 전송됩니다.|오늘은 날씨가 참 좋네요!|내일 다시 시도해 보시겠습니까?",
    "ar": "انتهت المهمة قبل ساعة من الموعد المحدد.|هل وصلت الرسالة إلى صاحبها؟|نعم، وصلت.",
    "hi": "यह क्षेत्र बहुत सुंदर है।|क्या आप कल आएँगे?|विद्यार्थी पुस्तकालय में पढ़ रहे हैं।",
    "emoji": "👨‍👩‍👧‍👦 went to 🇪🇸 and 🇯🇵 👍🏽!|🏳️‍🌈🏳️‍🌈🏳️‍🌈 1️⃣ 2️⃣ 3️⃣.",
}
SHAPES = {
    "one word": "x",
    "words, no sentence": "palabra ",
    "no space (zh)": "漢字",
    "flags": "🇪🇸",
    "one cluster": "\u0301",
    "clusters over size": "z" + "\u0301" * 1200,
    "white space": " \n",
    "headings only": "# a\n",
    "headings and bodies": "# Title of it\n\nBody.\n\n",
}


def paragraph(rng: random.Random) -> str:
    sentences = SENTENCES[rng.choice([*SENTENCES, "es", "en"])].split("|")
    shape = rng.random()
    if shape < 0.12:
        return "\n".join(f"- {rng.choice(sentences)}" for _ in range(rng.randint(3, 12)))
    if shape < 0.17:
        return "\n".join(f"| {rng.choice(sentences)} | {rng.random():.3f} |" for _ in range(rng.randint(3, 20)))
    if shape < 0.18:
        return "https://example.com/" + "".join(rng.choices("abcdef0123456789", k=rng.randint(50, 3000)))
    return " ".join(rng.choices(sentences, k=rng.randint(2, 14)))


def document(rng: random.Random, length: int) -> str:
    gap = rng.choice(["\n\n", "\n\n", "\r\n\r\n"])
    text = io.StringIO()
    while text.tell() < length:
        title = (
            f"{'#' * rng.randint(1, 4)} {rng.choice(['Guía', 'Install', '说明', 'Notes'])} {rng.randint(1, 99)}"
        )
        body = (paragraph(rng) for _ in range(rng.randint(1, 8)))
        text.write(gap.join([title, *body, ""]))
    return text.getvalue()[:length]


def seconds(split: Callable[[str], Iterable[object]], texts: list[str], runs: int = 3) -> float:
    """CPU seconds for all texts."""

    def once() -> float:
        start = time.process_time()
        for text in texts:
            for _ in split(text):
                pass
        return time.process_time() - start

    return min(once() for _ in range(runs))


def ours(overlap: int = 0) -> Callable[[str], Iterable[Sized]]:
    return lambda text: chunk(text, size=SIZE, overlap=overlap)


def compare(name: str, texts: list[str], others: dict[str, Callable[[str], Iterable[object]]], runs: int) -> None:
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"\n{name}: {len(texts)} x {len(texts[0]):,} characters, {megabytes:.1f} MB; chunks of {SIZE:,}")
    print(f"{'':40}{'MB/s':>10}{'times ours':>14}")
    base = seconds(ours(), texts)
    rows = {"ours": base, f"ours, overlap {OVERLAP}": seconds(ours(OVERLAP), texts)}
    rows |= {label: seconds(split, texts, runs) for label, split in others.items()}
    for label, taken in rows.items():
        print(f"{label:40}{megabytes / taken:>10.1f}{base / taken:>14.2f}")


def growth() -> None:
    print(f"\nHard shapes of {GROWN:,} characters, overlap {OVERLAP}: seconds of CPU, and for twice the text")
    print(f"{'':40}{'the text':>10}{'twice of it':>14}{'ratio':>8}")
    for name, unit in SHAPES.items():
        once, twice = (seconds(ours(OVERLAP), [unit * (count // len(unit))], 2) for count in (GROWN, 2 * GROWN))
        print(f"{name:40}{once:>10.3f}{twice:>14.3f}{twice / once:>8.2f}")


def main() -> None:
    rng = random.Random(7)
    text, markdown = TextSplitter(SIZE), MarkdownSplitter(SIZE)
    overlapping = TextSplitter(SIZE, OVERLAP)
    others: dict[str, Callable[[str], Iterable[object]]] = {
        "semantic-text-splitter": text.chunk_indices,
        f"semantic-text-splitter, overlap {OVERLAP}": overlapping.chunk_indices,
        "semantic-text-splitter, Markdown": markdown.chunk_indices,
    }
    compare("Documents", [document(rng, DOCUMENT) for _ in range(DOCUMENTS)], others, runs=3)
    compare("One long text", [document(rng, LONG)], {"semantic-text-splitter": text.chunk_indices}, runs=1)
    growth()


if __name__ == "__main__":
    main()
