"""Irregular verbs of English: forms that a stemmer does not bring together, so that "Who sends the invoices?"
is answered by "Invoices are sent by Olga". Forms that are nouns of their own besides ("saw", "wound", "rose")
are left out.
"""

from collections.abc import Iterable, Mapping
from functools import cache

from ctx.analyze import terms

_VERBS = """
    begin began begun|bite bit bitten|blow blew blown|break broke broken|bring brought|build built
    burn burnt|buy bought|catch caught|choose chose chosen|deal dealt|dig dug|draw drew drawn
    drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought
    find found|fly flew flown|forget forgot forgotten|forgive forgave forgiven|freeze froze frozen
    get got gotten|give gave given|go went gone|grow grew grown|hang hung|hear heard|hide hid hidden
    hold held|keep kept|know knew known|lead led|lean leant|learn learnt|leave left|lend lent|lose lost
    make made|mean meant|meet met|pay paid|ride rode ridden|ring rang rung|rise risen|run ran|say said
    see seen|seek sought|sell sold|send sent|shake shook shaken|shine shone|shoot shot|show shown
    sing sang sung|sit sat|sleep slept|speak spoke spoken|spend spent|stand stood|steal stole stolen
    stick stuck|swear swore sworn|swim swam swum|take took taken|teach taught|tear tore torn|tell told
    think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|weave wove woven
    win won|write wrote written
"""


def _verbs() -> list[str]:
    """The forms of each verb, with spaces between."""
    return _VERBS.strip().replace("\n", "|").split("|")


@cache
def past_forms() -> frozenset[str]:
    """The words that say what is over: of each verb all forms but the first."""
    verbs = (verb.split() for verb in _verbs())
    return frozenset(form for base, *forms in verbs for form in forms if form != base)


@cache
def _forms() -> Mapping[str, tuple[str, ...]]:
    """The other forms of each form, all as terms."""
    forms: dict[str, tuple[str, ...]] = {}
    for verb in map(terms, _verbs()):
        for form in verb:
            forms[form] = tuple(variant for variant in dict.fromkeys(verb) if variant != form)
    return forms


def verb_forms(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The other forms of those terms that are of an irregular verb."""
    forms = _forms()
    return {word: forms[word] for word in words if word in forms}
