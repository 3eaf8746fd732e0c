"""A statement: what stands in a text that a person said, by which it can be told from others and compared
with them.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from ctx.analyze import STOP_WORDS, terms
from ctx.analyze import words as whole_terms
from ctx.memory.contrast import denies, determined, frame, kinds, limited, spellings, subject, wishes
from ctx.memory.facets import facets
from ctx.memory.gist import first_person, normal_words
from ctx.memory.language import foreign, inflected, language, sexless, silent_terms
from ctx.memory.persons import owners, relatives
from ctx.memory.places import places
from ctx.memory.slots import MEASURES, PERSON_TITLE, PREFACE, VALUE_TYPES, Slot, slot
from ctx.text import lowered

# Patterns of small letters are matched with a text in lower case: `(?i)` would try each of a hundred words at
# each place, four times as long.
# What says that something is no longer as it was. English and German.
_CUE = re.compile(
    r"\b(?:switch(?:ed|ing)?|mov(?:ed|ing)|migrat\w+|ported|chang(?:ed|es|ing)|replac\w+|swapped|traded"
    r"|exchanged|renam\w+|rechristen\w*|upgrad\w+|downgrad\w+|converted"
    r"|rewr\w+|rebuilt|re(?P<anew>licen[cs]ed|painted|homed|housed|wired|priced|booked|worded|phrased"
    r"|designed|trained|married|numbered|installed|decorated|organi[sz]ed|configured|implemented|modelled)"
    r"|postponed|rescheduled|delayed|raised|increased|lowered|reduced|decreased|cut|bumped|doubled|halved"
    r"|shifted"
    r"|extended|shortened|sold(?!\s+(?:out\b|\d))|quit|stopped|dropped|completed|passed|abandoned|ditched"
    r"|retired|gave\s+up|given\s+up|(?<!the\s)(?<!my\s)(?<!on\s)left(?!-)"  # a side is no end
    r"|(?:ripped|tore|torn|kicked|phased)\s+out|scrapped|dumped|shelved"
    r"|decommissioned|uninstalled|did\s+away\s+with|parted\s+ways\s+with|took\s+over|taken\s+over"
    r"|hand(?:ed|s)\s+over"
    r"|no\s+longer|not\s+any\s*more|any\s*more|anymore|instead(?:\s+of)?|rather\s+than"
    r"|(?:would|['’]d)\s+rather|got\s+rid\s+of|stolen|used\s+to|from\s+(?:now|here)\s+on|these\s+days"
    r"|by\s+now|now|nowadays"
    # an end, a beginning, another holder, another place on a scale
    r"|(?:gave|given)(?=\s+(?:[\w'’]+\s+){0,4}(?:to|away)\b)|cancel\w*|closed|clos(?:ed|ing)\s+down"
    r"|shut\s+down|ended|laps(?:e[sd]?|ing)|let\s+go\s+of|let\s+(?:[\w'’]+\s+){1,3}go|no\s+more"
    r"|in\s+place\s+of|(?:broke|split)\s+up|got\s+through|cashed\s+in|thr(?:ew|own)\s+(?:out|away)|separated"
    r"|resign\w+|fired"
    r"|adopted|renew\w+|rebrand\w+|relocat\w+|transfer\w*|reassign\w*|hand(?:ed|s)\s+to|pass(?:ed|es)\s+to"
    r"|slipped|slid"
    r"|(?:pushed|put)\s+(?:back|off)|brought\s+forward"
    r"|(?:is|am|are|was|went|gone|came|got|put|set|brought)\s+(?:\w+\s+){0,2}(?:down|up|back)\s+to"
    r"|not\s+[\w\s]{0,20}since"
    r"|since|from\s+(?:this|next|last|today|tomorrow|(?:mon|tues|wednes|thurs|fri|satur|sun)day)|starting"
    r"|effective|as\s+of|put\s+(?:me|us|him|her|them)\s+on(?!\s+(?:the|an?|my|hold)\b)|became|become|turned\s+(?:into|\d+)|joined"
    r"|(?:got|bought|have|my|a|the|our|\w+['’]s)\s+(?:\w+\s+){0,2}?new"
    r"|come\s+to\s+(?:like|love|prefer)|after\s+all|settled\s+on|opted\s+for|decided\s+on|divorced"
    r"|(?:went|gone|going|go)\s+back|again|married|graduated|promoted|started|finished|moved\s+on|actually"
    r"|correction"
    r"|jetzt|inzwischen|mittlerweile|nicht\s+mehr|statt(?:dessen)?|(?:um)?gezogen|gewechselt|wechselte"
    r"|geändert|ersetzt|verschoben"
    r"|ya\s+no|ahora|en\s+(?:lugar|vez)\s+de|cambi(?:é|ó|ado|amos)|mudado|mudé|dej(?:é|ó|ado|amos)"
    r"|aplazad[oa]|nuev[oa]s?"
    r"|maintenant|désormais|dorénavant|depuis|décalée?s?|avancée?s?|repoussée?s?|(?:ne|n['’])\s*\w+\s+plus"
    r"|au\s+lieu\s+de|déménagé|changé|remplacé|arrêté|quitté|reporté|nouve(?:au|l|lle)s?"
    r"|verlegt|umbenannt|gekündigt|abgelöst|aufgehört|übernommen|künftig|neuerdings"
    r"|ab\s+(?:sofort|heute|morgen|jetzt|(?:dem\s+)?\d|januar|februar|märz|april|mai|juni|juli|august"
    r"|september|oktober|november|dezember|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch)|seit)\b"
)
_EMPTY = frozenset(
    (
        *terms("Nutzer Nutzerin Benutzer Benutzerin usuario usuaria utilisateur utilisatrice"),
        "user",
        "from",
        "into",
        "than",
        "doe",
        "did",
        "done",
        "our",
        "over",
        "with",
        "off",
        "out",
        "away",
    )
)
# What says that something comes on top of what there is, and puts nothing in its place.
_ADDING = re.compile(
    r"\b(?:also|as\s+well|in\s+addition|additionally|besides|too(?=\s*(?:[.,;!]|$))|auch|außerdem"
    r"|zusätzlich|ebenfalls)\b"
)
# What stands before the thing that ended: a verb of ending, or from where somebody moved, not comes.
_ENDED = re.compile(
    r"(?i)(?:\b(?:(?<!\bcome )(?<!\bcomes )(?<!\bis )(?<!\bare )from"
    r"(?!\s+(?:now|here|today|tomorrow)\b)|off(?!\s+(?:with|on|to|for|at|in|until|from)\b)"
    r"|away\s+from|out\s+of|instead\s+of|rather\s+than|in\s+place\s+of|no\s+longer|replac\w+|dropped|left"
    r"|quit|sold(?!\s+(?:out\b|\d))|cancel\w*|closed"
    r"|ended|abandoned|ditched|retired|traded(?:\s+in)?|swapped|exchanged|(?:gave|given)\s+up(?:\s+on)?"
    r"|stopped(?:\s+using)?|finished|got\s+through|cashed\s+in|thr(?:ew|own)\s+(?:out(?!\s+of\b)|away)"
    r"|(?:ripped|tore|torn|kicked|phased)\s+out(?!\s+of\b)|scrapped|dumped|shelved|decommissioned"
    r"|uninstalled|did\s+away\s+with|parted\s+ways\s+with|completed|passed(?!\s+(?:to|on)\b)"
    r"|prefers?\s+(?:[\w.+#-]+\s+){1,3}over|shut\s+down|von|statt|quitté|arrêté|au\s+lieu\s+d[e'’]"
    r"|plus\s+(?:chez|à|de)|dej(?:é|amos)(?:\s+de)?|ya\s+no\s+(?:soy|estoy|trabajo\s+(?:en|como)))"
    r"|,\s*(?:and\s+)?not)"
    r"\s+(?!(?:and|but|so|because|since)\b)([\w.'’:-]+\s*(?:(?!(?:with|by|to|for|in\s+favou?r|and|but|so"
    r"|because|since)\b)[\w.'’:-]+\s*){0,3})"
)
# And after it: "My Cannondale was stolen", "Dr Lindner has retired".
_GONE = re.compile(
    r"(?:^|[.;,]\s+|\b(?:since|because|now\s+that|after)\s+)(?:(?:and|but|as|because|since"
    r"|now\s+that)\s+)?((?:[\w.'’-]+\s+){1,4}?)(?:(?:was|were|is|are|has|have|had|got|been|just|now"
    r"|finally)\s+){0,3}"
    r"(?:stolen|sold|broke(?:\s+down)?|lost|cancel\w*|closed|closing|discontinued|retired|retiring|died"
    r"|passed\s+away|resigned|fell\s+through|(?:broke|split)\s+up|folded|expired|ended"
    r"|(?:torn|burnt|burned)\s+down|demolished"
    r"|shut\s+down|(?:left|quit|gone|no\s+longer\s+with\s+us)(?=\s*(?:[,;.:–—]|$))"
    r"|found\s+(?:another|a\s+new)\s+job|moved\s+(?:away|out)(?!\s+of\b)"
    r"|(?:went\s+)?on\s+(?:[\w'’]+\s+){0,2}leave|went\s+(?:bankrupt|downhill|out\s+of\s+business)|in\s+rente"
    r"|gestohlen|verkauft|gestorben|geschlossen)\b"
    # of whoever "lost the notes" nothing is over, but of what "closed a week ago"
    r"(?!\s+(?:the|an?|our)\s+(?!(?:\w+\s+)?(?:day|week|month|year|while|moment)s?\b))"
)
# "heron is now called egret": what had a name has another.
_NAMED_ANEW = re.compile(
    r"(?i)^(?:the\s+)?(?P<former>[\w.-]+(?:\s+[\w.-]+)?)\s+(?:is|was|has\s+been|goes|got|will\s+be)\s+"
    r"(?:now\s+|since\s+)?(?:called|named|renamed|rechristened|known\s+as|by\s+the\s+name)\b"
)
_WHOLE_WORD = re.compile(r"[\w-]+")
# Who ends something for themselves: a band goes on without the drummer who left it.
_LEAVER = re.compile(
    r"^(?!(?:We|They)\b)([A-ZÄÖÜ][\w'’-]+)\s+(?:(?:has|just|finally)\s+)*(?:left|quit|resigned|stopped"
    r"|gave\s+up)\b"
)
# Where something is: kept, found, sent.
_LOCATED = re.compile(
    r"(?i)\b(?:(?:is|are|be|gets?)\s+(?:\w+\s+)?(?:(?:kept|stored|saved|held|put|archived|located|parked"
    r"|posted|sent|uploaded|copied|placed|hidden|written|found)\s+)?"
    r"|(?:lives?|sits?|stays?|goe?s?|hangs?|stands?|lies?|moved)\s+(?:\w+\s+)?)"
    r"(?:in|on|at|to|into|onto|under|behind|above|below|next\s+to|inside|with|near|by)\s+\w"
)
_PUT = re.compile(
    r"(?i)(?:i|we)\s+(?:\w+\s+)?(?:keep|store|park|put|leave|hide|have)s?\s+(?:my|our"
    r"|the)\s+((?:[\w-]+\s+){1,3}?)(?:in|on|at|under|behind|with|by)\s+\w"
)
# What somebody gave another value: "Design changed the primary colour to indigo".
_SET_ANEW = re.compile(
    r"(?i)\b(?:changed|updated|set|reset|switched|renamed|raised|lowered|bumped|increased|reduced|moved"
    r"|shifted)\s+(?:the|our|my)\s+((?:[\w'’-]+\s+){1,5}?)(?:to|from|into|by)\b"
)
# What is denied and used not to be: "I don't need contacts any more".
_DENIED = re.compile(
    r"(?i)\b(?:not|never|[a-z]+n['’]t|keine?[nmrs]?)\s+((?:[\w'’-]+\s+){1,4}?)(?:any\s?more|any\s+longer"
    r"|again|mehr)\b"
)
# What is denied of a thing that stands before it.
_NO_MORE = re.compile(
    r"(?i)\b(?:no\s+longer|not\s+any\s*more|isn['’]t\s+\w+\s+any\s*more|nicht\s+mehr|ya\s+no"
    r"|ne\s+\w+\s+plus)\b"
)
# What took the place of something, and when.
_SUCCESSOR = re.compile(
    r"(?i)\b(?:to|onto|for|with|by|into|zu|durch|por|a|pour"
    r"|in favou?r of)\s+(?:(?!(?:from|to|onto|for|with|by|into)\b)[\w.'’&+#-]+\s*){1,4}"
    r"|\b(?:last|next|this|in|since)\s+(?:week|month|year|spring|summer|autumn|winter|jan\w*|feb\w*|mar\w*"
    r"|apr\w*|may|june?|july?|aug\w*|sep\w*|oct\w*|nov\w*|dec\w*|\d{4})\b|\b\d[\w.:]*"
    r"|\b(?:one|two|three|four|five|six)\b"
)
# What a speaker does, which is nothing that a statement is about: "I signed up".
_DEED = re.compile(
    r"(?i)\b(?:i|we|they|ich|wir|user)(?:['’](?:ve|m|re))?\s+(?:(?:have|just|finally"
    r"|recently)\s+)*\w+(?:\s+(?:up|out|off|over|away|down))?\b"
)
# What passed between people, or was looked at: it says nothing of how things are.
_TALK = re.compile(
    r"(?i)^(?:(?:i|we|(?:the\s+)?user|my\s+\w+|[\w'’-]+)(?:\s+and\s+[\w'’-]+)?\s+(?:just\s+|also\s+)?)?"
    r"(?:asked|talked|spoke|chatted|discussed|reviewed|investigated|looked\s+(?:at|into)|borrowed|watched"
    r"|visited|thanked|mentioned|explained|presented|attended|debugged|met)\s"
)
_CLAUSE_END = re.compile(
    r"(?i)\s*[,;:–—]\s+(?:(?:and|but|so|und|aber|y|et|mais)\s+)?|\s+(?:and|but|so|und|aber|y|et|mais)\s+"
)
_HOURS = re.compile(
    r"(?i)\b(?:(?:half|quarter)\s+(?:past|to|after|before)\s+\w+|halb\s+\w+|\d{1,2}:\d{2}"
    r"|\d{1,2}\s?(?:am|pm|uhr)|o['’]?clock)\b"
)
_COUNT = re.compile(
    r"\d|\b(?:no|none|nothing|free|zero|half|double|twice|an?other|more|less|fewer|kein\w*|nichts|gratis"
    r"|doppelt|mehr|weniger|nada|sin|más|menos|rien|plus|moins"
    r"|(?<!\bthe\s)(?<!\bold\s)(?<!\bnew\s)(?<!\bthis\s)(?<!\bthat\s)one"
    r"|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred"
    r"|thousand"
    r"|ein|eine|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|un|una|dos|tres|cuatro|cinco|seis"
    r"|siete|ocho|nueve|diez"
    r"|une|deux|trois|quatre|cinq|six|sept|huit|neuf|dix)\b"
)
_OFTEN = re.compile(
    r"\b(?:every|each|once|twice|never|always|(?:hour|day|night|week|month|quarter|year)(?:s|ly)?|daily"
    r"|noon|midnight|(?:mid)?(?:morning|afternoon|evening)s?"
    r"|spring|summer|autumn|winter|(?:after|before)\s+(?:work|school|lunch|dinner|breakfast|\w+ing)"
    r"|jede[mnrs]?|einmal|zweimal|nie|immer|(?:stünd|täg|nächt|wöchent|monat|jähr)lich"
    r"|(?:morgen|abend|mittag|nacht)s?"
    r"|cada|nunca|siempre|diari[oa]|semanal|mensual|chaque|jamais|toujours|quotidien(?:ne)?|hebdomadaire"
    r"|mensuel(?:le)?)\b"
)
_PROPER = re.compile(r"(?<!^)(?<![.!?]\s)\b(?:[A-ZÄÖÜ][\w+#.-]+|\d[\w.:-]*)|\b[a-z]+[A-Z]\w*")
_TITLED = re.compile(r"(?<!^)(?<![.!?]\s)\b[A-ZÄÖÜ][a-zäöüß]\w*")
# How a turn of a conversation begins, where it is stored with its speaker.
TURN = re.compile(r"\s*(?P<speaker>[A-ZÄÖÜ][\w.'’-]{0,30}(?:\s[A-ZÄÖÜ][\w.'’-]{0,30})?):\s+(?=\S)")
_OWNED = re.compile(r"(?i)(?:my|our)\s")
_SELF_STARTS = ("i ", "i'm ", "my ", "we ", "our ", "the user", "user")

MAX_STATEMENT_CHARS = 300  # two or three sentences
MAX_CHARS = 600  # of a statement; longer texts are told apart by their beginning
_READ_CHARS = MAX_CHARS + 200  # with the name of who speaks ahead, and blanks


class Statement:
    """What stands in a text, each thing looked for once and only when it is asked for: of most texts that a
    new one might replace the slot alone is."""

    def __init__(self, whole: str) -> None:
        turn = TURN.match(whole)
        self.text = whole[0 if turn is None else turn.end() :][:MAX_CHARS]
        self.short = len(whole) <= MAX_STATEMENT_CHARS and "\n" not in whole.strip()
        """A statement, and not a report or a conversation that holds several."""
        self.speaker = "" if turn is None else turn["speaker"].casefold()
        """Who says it, where a conversation was stored turn by turn ("Petra: ..."); else ""."""

    @staticmethod
    def of(text: str) -> "Statement":
        """The statement of a text."""
        return _statement(text[:_READ_CHARS])  # the whole of a megabyte would be kept with it

    @cached_property
    def slot(self) -> Slot | None:
        """What it gives a value to, where it has the form of such a statement."""
        return slot(self.text)

    @cached_property
    def matter(self) -> frozenset[str]:
        """The terms of what it is about but for names: who shares one of those need not be of one matter."""
        return self.content - self._sexless(self.titled)

    def _sexless(self, terms_of_text: Iterable[str]) -> frozenset[str]:
        """Terms by which two statements are compared: whoever has a calling, it is one."""
        name = language(self.text)
        return frozenset(sexless(term, name) for term in terms_of_text)

    @cached_property
    def _without_cues(self) -> str:
        """The text without what says that something changed."""
        return _cueless(self.text, self._low, anew=True)

    @cached_property
    def _low(self) -> str:
        return lowered(self.text)

    @cached_property
    def changes(self) -> bool:
        """Whether it says by itself that something is no longer as it was."""
        change = self._without_cues != self.text or _GONE.search(self._low) is not None
        return change and not self.adds

    @cached_property
    def content(self) -> frozenset[str]:
        """The terms that say what it is about: without stop words, the speaker, what says that something
        changed, and times of day, which are what is said of it."""
        words = terms(" ".join(normal_words(_HOURS.sub(" ", self._without_cues))))
        return self._sexless(frozenset(words) - STOP_WORDS - _EMPTY - silent_terms(self.text))

    @cached_property
    def beginning(self) -> frozenset[str]:
        """The term of its content with which it begins."""
        terms_in_order = (term for word in normal_words(self._without_cues) for term in terms(word))
        spelt = (form for term in terms_in_order for form in self._sexless((term,)))
        return frozenset(itertools.islice((form for form in spelt if form in self.content), 1))

    @cached_property
    def kinds(self) -> frozenset[tuple[str, str]]:
        """The things in it with what tells them from others of their kind."""
        return kinds(first_person(self._without_cues))

    @cached_property
    def spellings(self) -> dict[str, str]:
        """How it spells the terms of its kinds."""
        return spellings(first_person(self._without_cues))

    @cached_property
    def things(self) -> frozenset[tuple[str, str]]:
        """Those of its things that an article or a possessive stands before, which no verb does."""
        return determined(first_person(self.text))

    @cached_property
    def subject(self) -> frozenset[str]:
        """The terms of the thing that it is about, where it begins with one. English."""
        return frozenset() if self.foreign or self.of_self else subject(self._without_cues)

    @cached_property
    def owned(self) -> frozenset[str]:
        """The terms of what is the speaker's, where it begins with that: "Our second album has sold out".
        English.
        """
        return frozenset() if self.foreign or not _OWNED.match(self.text) else subject(self._without_cues)

    @cached_property
    def adds(self) -> bool:
        """Whether it says that something comes on top of what there is."""
        return _ADDING.search(self._low) is not None

    @cached_property
    def counted(self) -> bool:
        """Whether it says how much."""
        return _COUNT.search(self._low) is not None

    @cached_property
    def measured(self) -> bool:
        """Whether it says when, how often or how much."""
        forms = (_HOURS, *(VALUE_TYPES[name] for name in MEASURES))
        return _OFTEN.search(self._low) is not None or any(form.search(self.text) for form in forms)

    @cached_property
    def terms(self) -> frozenset[str]:
        """All its terms."""
        return frozenset(terms(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        """Terms of names and numbers, by which a later text can refer to it."""
        words = _PROPER.findall(PERSON_TITLE.sub(" ", self.text))
        return frozenset(term for word in words for term in terms(word))

    @cached_property
    def titled(self) -> frozenset[str]:
        """Terms of words that are spelt as a name: who shares one need not be of one matter."""
        return frozenset(whole_terms(" ".join(_TITLED.findall(self.text))))

    @cached_property
    def ended(self) -> frozenset[str]:
        """Terms of what it says is over: what was sold, left or cancelled, or where something moved away
        from."""
        return self._sexless(term for match in _endings(self.text) for term in terms(match[1]))

    @cached_property
    def ending_words(self) -> frozenset[str]:
        """The terms by which it says that something is over."""
        sayings = (self.text[match.start() : match.start(1)] for match in _endings(self.text))
        return frozenset(terms(" ".join(sayings))) - STOP_WORDS

    @cached_property
    def ending(self) -> frozenset[str]:
        """The terms of the parts of the sentence that say that something is over, but for what took its place
        and when.
        """
        parts = [part for part in _CLAUSE_END.split(self.text) if any(_endings(part))]
        parts = [part if _NO_MORE.search(part) else _SUCCESSOR.sub(" ", part) for part in parts]
        sentence = _DEED.sub(" ", _DENIED.sub(r" ; \1 ", _ENDED.sub(r" ; \1 ", " ".join(parts))))
        words = terms(_cueless(sentence, lowered(sentence)))
        return self._sexless(frozenset(words) - STOP_WORDS - _EMPTY - silent_terms(self.text))

    @property
    def located_thing(self) -> frozenset[str]:
        """The terms of the thing of which it says where that is, where it begins with it."""
        if placing := _PUT.match(first_person(self.text)):
            return frozenset(terms(placing[1])) - STOP_WORDS
        match = _LOCATED.search(self.text)
        return frozenset() if match is None else self.subject - frozenset(terms(match[0]))

    @property
    def says_no_more(self) -> bool:
        """Whether it denies of a thing that stands before it what used to be so."""
        return _NO_MORE.search(self.text) is not None

    @property
    def tells_deed(self) -> bool:
        """Whether it begins with what the speaker does."""
        return _DEED.match(first_person(self.text)) is not None

    @property
    def of_talk(self) -> bool:
        """Whether it tells of what was talked of or looked at once, and of no change."""
        return not self.changes and "," not in self.text and _TALK.match(self.text) is not None

    @property
    def ended_forms(self) -> frozenset[str]:
        """The terms of `ended` as texts may hold them."""
        return inflected(self.ended, language(self.text))

    @cached_property
    def gone(self) -> frozenset[str]:
        """Terms of what it says is over, also where that stands before the word that says so."""
        return self.ended | self._sexless(
            term for match in _GONE.finditer(self._low) for term in terms(self.text[slice(*match.span(1))])
        )

    @cached_property
    def leaver(self) -> frozenset[str]:
        """The name of who ended something for themselves alone."""
        match = _LEAVER.match(self.text)
        return frozenset() if match is None else frozenset(terms(match[1]))

    @cached_property
    def clause_slots(self) -> tuple[Slot, ...]:
        """What the parts of the sentence give a value to, where it has several."""
        clauses = _CLAUSE_END.split(PREFACE.sub("", self.text))
        return tuple(filter(None, map(slot, clauses))) if len(clauses) > 1 else ()

    @property
    def is_of_one_clause(self) -> bool:
        """Whether it says one thing: "X is out, Y does it" says two."""
        return _CLAUSE_END.search(self.text.rstrip(" .!")) is None

    @cached_property
    def named_value(self) -> frozenset[str]:
        """The terms of the name that it gives as a value."""
        if self.slot is None:
            return frozenset()
        return frozenset(term for word in _PROPER.findall(" " + self.slot.value) for term in terms(word))

    @cached_property
    def former_name(self) -> str:
        """What something was called, in lower case, that is said to be called otherwise; else ""."""
        match = _NAMED_ANEW.match(self.text)
        return "" if match is None else _worded(match["former"])

    @cached_property
    def worded(self) -> str:
        """Its words in lower case, with a space around each."""
        return f" {_worded(self.text)} "

    @cached_property
    def others(self) -> frozenset[str]:
        """Persons besides the speaker."""
        return relatives(self.text)

    @cached_property
    def of_self(self) -> bool:
        """Whether the speaker begins with themselves, or with what is theirs."""
        return self.text.lower().startswith(_SELF_STARTS)

    @cached_property
    def foreign(self) -> bool:
        """Whether it is in a language that a model of English does not read."""
        return foreign(self.text)

    @cached_property
    def places(self) -> frozenset[str]:
        """Whose home it names, or whose work: one has one at a time, however it is put."""
        return places(self.text)

    @cached_property
    def facets(self) -> frozenset[str]:
        """What it tells of the speaker that one has one of at a time, however it is put: the editor, the
        manager.
        """
        return facets(self.text, self.content) if self.short and not self.adds else frozenset()

    def sets_anew(self, earlier: "Statement") -> bool:
        """Whether it says that something got another value of which the earlier one speaks."""
        match = _SET_ANEW.search(self.text)
        return match is not None and earlier.content.issuperset(terms(match[1]))

    @cached_property
    def frame(self) -> frozenset[str]:
        """The terms of when or where it holds, where it begins with that."""
        return frame(self.text)

    @cached_property
    def denies(self) -> bool:
        """Whether it says what is not."""
        return denies(self.text)

    @cached_property
    def partial(self) -> bool:
        """Whether it says what holds in some cases, or is not so yet."""
        return limited(self.text) or wishes(self.text)

    @cached_property
    def owners(self) -> frozenset[str]:
        """The persons whose something is: of "My wife's phone" the wife."""
        return owners(self.text)


@lru_cache(maxsize=4096)  # a search compares its thirty best, mostly the same ones again
def _statement(beginning: str) -> Statement:
    return Statement(beginning)


def _worded(text: str) -> str:
    """The words of a text in lower case, with a space between them."""
    return " ".join(_WHOLE_WORD.findall(text.casefold()))


def _cueless(text: str, low: str, *, anew: bool = False) -> str:
    """A text (`low`: in lower case) without what says that something changed. `anew`: of what is relicensed
    stays that it is licensed.
    """
    pieces: list[str] = []
    position = 0
    for match in _CUE.finditer(low):
        first, last = match.span("anew") if anew else (0, 0)
        pieces += text[position : match.start()], text[max(0, first) : max(0, last)] or " "
        position = match.end()
    return "".join(pieces) + text[position:]


def _endings(text: str) -> Iterator[re.Match[str]]:
    """Where a text says that something is over; the first group is what."""
    return itertools.chain(_ENDED.finditer(text), _DENIED.finditer(text))
