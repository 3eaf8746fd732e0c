"""In which language a text is put, by its function words: a closed class, by which a language can be told
from a few words and which says nothing of what a text is about.

English is what the shipped model reads, and whose stop words the analysis knows. German, Spanish and French
are told from it, so that their function words weigh as little, and what the model makes of them is believed
less.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from ctx.analyze import STOP_WORDS, composed, terms

_GERMAN = """
    der die das dem den des ein eine einen einem einer eines und oder aber ist sind bin bist wird werden wurde
    wurden hat habe haben hatte ich du er sie wir ihr mich dich uns euch mir dir ihm ihn ihnen mein meine
    meinen meinem meiner meines dein deine unser unsere unseren unserem unserer sein seine seinen seinem
    seiner ihre ihren ihrem ihrer nicht kein keine keinen keinem keiner wer wo wann wie warum wieso woher
    wohin wem wen welche welcher welches welchen welchem von vom zu zum zur mit nach bei beim aus auf für im
    ins um über unter seit ab bis durch gegen ohne wenn weil dass ob noch schon nur sehr jetzt mehr auch mag
    heiße heißt heißen
"""
_SPANISH = """
    el la los las un una unos unas y o pero es soy eres somos está estoy están ha han hay fue yo tú él ella
    nosotros ellos mi mis tu tus su sus nuestro nuestra nuestros nuestras se te le les lo nos no ni que qué
    quién quiénes cuál cuáles cuándo cuánto cuántos dónde cómo adónde por para con sin de del al en desde
    hasta sobre entre muy más ya ahora también este esta estos estas
"""
_FRENCH = """
    le la les un une des du de au aux et ou mais est sont suis es sommes êtes était je j tu il elle on nous
    vous ils elles mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs ce cet cette ces qui que qu
    quoi quel quelle quels quelles où quand comment combien pourquoi pas ne n plus pour par avec sans dans sur
    sous chez entre vers depuis jusqu très déjà encore aussi maintenant ai as a avons avez ont c d l s m t à y
"""
_WORDS_OF = {
    "de": frozenset(_GERMAN.split()),
    "es": frozenset(_SPANISH.split()),
    "fr": frozenset(_FRENCH.split()),
}
# What the stop words of the analysis lack: a question for what holds now is one for what holds.
_PRESENT = ("now", "nowadays", "currently")
# With English, whose "don't" ends in a t: they tell nothing.
_BOTH = "a am an as d he in m me no on plus s so son t was will y"
_SHARED = frozenset(_BOTH.split())
_ENGLISH = (STOP_WORDS | {"i", "user"}) - _SHARED
_TELLING = {name: function_words - _SHARED for name, function_words in _WORDS_OF.items()}
_WORD = re.compile(r"[^\W\d_]+")
# What a calling ends with by the sex of whoever has it: "Kinderarzt" and "Kinderärztin", "médico" and
# "médica".
_SEXES = {"de": ("in",), "es": ("a", "o"), "fr": ("e",)}
# What the analysis takes for an ending, and the other sex has its own behind: "Projektleiter",
# "Projektleiterin".
_CUT = {"de": ("er",)}
_SHORTEST_CALLING = 4  # letters, without the ending
_BEHIND_ARTICLE = re.compile(
    r"(?i)\b(?:der|die|(?:mein|dein|unser|euer|ihr|sein)(?:e[mnr]?)?|el|la|mi|tu|su|nuestr[oa]|le|mon|ma"
    r"|notre|votre)\s+(\w+)"
)
_ASKED_FOR = re.compile(r"(?i)\b(?:wer\s+ist|quién\s+es|qui\s+est)\s+(\w+)")
_JUDGED_CHARS = 1000  # tell enough of a long text


def language(text: str) -> str:
    """`de`, `es`, `fr` or `en`: the one of whose function words a text holds most; English where none stands
    out."""
    return _language(text[:_JUDGED_CHARS])


@lru_cache(maxsize=4096)  # a search asks it of its thirty best, mostly the same ones again
def _language(beginning: str) -> str:
    words = frozenset(_WORD.findall(composed(beginning).casefold()))
    counts = {name: len(words & function_words) for name, function_words in _TELLING.items()}
    name = max(counts, key=lambda name: counts[name])
    return name if counts[name] > len(words & _ENGLISH) else "en"


def foreign(text: str) -> bool:
    """Whether a text is in a language that a model of English does not read."""
    return language(text) != "en"


def silent_terms(text: str) -> frozenset[str]:
    """The terms of the function words of a text's language; of English those alone that are none of the
    analysis' stop words."""
    return _terms_of(language(text))


@lru_cache
def _terms_of(name: str) -> frozenset[str]:
    return frozenset(terms(" ".join(sorted(_WORDS_OF.get(name, _PRESENT)))))


@lru_cache(maxsize=4096)
def sexless(term: str, name: str) -> str:
    """A term without the ending that tells a woman from a man in the language of that name."""
    for ending in _SEXES.get(name, ()):
        if term.endswith(ending) and len(term) - len(ending) >= _SHORTEST_CALLING:
            base = term[: -len(ending)]
            return next(iter(terms(base)), base) if name in _CUT else base
    return term


def callings(text: str) -> frozenset[str]:
    """The terms of what may be somebody's calling in a text: behind an article or a possessive no verb
    stands, nor behind "Wer ist"."""
    words = (*_BEHIND_ARTICLE.findall(text), *_ASKED_FOR.findall(text))
    return frozenset(terms(" ".join(words)))


def inflected(terms_without: Iterable[str], name: str) -> frozenset[str]:
    """Terms without such endings as texts in the language of that name may hold them."""
    endings = _SEXES.get(name, ())
    behind = ("", *endings, *(stem + ending for stem in _CUT.get(name, ()) for ending in endings))
    return frozenset(term + ending for term in terms_without for ending in behind)
