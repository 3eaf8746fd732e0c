"""LaTeX: sections, titles, and what is kept whole."""

from ctx.formats.markup import parse_latex as parse

SOURCE = r"""\documentclass{article}
\title[short]{On \emph{Water} \& Wind\thanks{the mill}}
% \section{Not this}
\begin{document}
\section{Erd\H{o}s and caf\'{e}s\label{sec:a}}
words
  \subsection*{The {inner} part}
\begin{verbatim}
\section{nor this}
\end{verbatim}
\begin{table*}
a & b \\
\end{table*}
\paragraph{Last~words}
\section{}
\end{document}
"""


def test_sections_are_headings_without_their_commands() -> None:
    parsed = parse(SOURCE)
    assert parsed.title == "On Water & Wind"
    assert [(heading.level, heading.title) for heading in parsed.headings] == [
        (3, "Erdős and cafés"),
        (4, "The inner part"),
        (6, "Last words"),
    ]
    assert parsed.body == SOURCE


def test_listings_and_tables_are_kept_whole() -> None:
    parsed = parse(SOURCE)
    blocks = [parsed.body[start:end].strip() for start, end in parsed.atoms]
    assert [block.split("\n")[0] for block in blocks] == [r"\begin{verbatim}", r"\begin{table*}"]
    assert [block.split("\n")[-1] for block in blocks] == [r"\end{verbatim}", r"\end{table*}"]
