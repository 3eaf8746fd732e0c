"""Facets: what somebody has one of at a time, an editor, a manager, a way to work, told by what it is
whatever the words.

"I've moved over to Brave" shares no word with "I use Firefox as my browser", and is of the same thing since
both are browsers; so is "I report to Daniel these days" with "My manager is Priya". A text is of a facet
where it says nothing besides: who uses Chrome at work, or Vim for Python, has not told what they use. What is
wanted is that a question for the facet finds the last that was said of it, so a mistake costs a rank and no
memory.
"""

import re
from functools import cache, lru_cache
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.contrast import denies, limited, wishes
from ctx.memory.gist import first_person
from ctx.memory.language import silent_terms
from ctx.memory.places import places

# Facets of which the value is a product: what they are called, and the best known ones as their makers spell
# them.
_PRODUCTS = {
    "editor": (
        "editor ide coding code programming programmieren",
        "Vim|Neovim|Emacs|VS Code|VSCode|Visual Studio Code|Zed|Sublime Text|Sublime|IntelliJ|IntelliJ "
        "IDEA|PyCharm|WebStorm|Helix|Eclipse|Xcode|Cursor|Nano",
    ),
    "browser": (
        "browser browsing web surfing navigateur navegador",
        "Firefox|Chrome|Chromium|Safari|Brave|Edge|Opera|Vivaldi|Arc|LibreWolf",
    ),
    "system": (
        "operating system os laptop computer betriebssystem",
        "Linux|Ubuntu|Debian|Fedora|Arch Linux|Arch|Windows|macOS|NixOS|Mint",
    ),
    "shell": ("shell", "bash|zsh|Bash|Zsh|Fish|fish|Nushell|PowerShell"),
    "hosting": (
        "hosting hosted host cloud provider infrastructure deploy deploys deployed server servers",
        "AWS|Azure|GCP|Google Cloud|Hetzner|DigitalOcean|Heroku|Linode|Vercel|Netlify|Fly.io|Render"
        "|Cloudflare|OVH|Scaleway|Railway",
    ),
    "builds": (
        "ci build builds pipeline pipelines continuous integration",
        "Jenkins|GitHub Actions|GitLab CI|CircleCI|Travis|Travis "
        "CI|Buildkite|TeamCity|Drone|Woodpecker|Azure Pipelines",
    ),
    "database": (
        "database db datenbank base datos",
        "MySQL|MariaDB|Postgres|PostgreSQL|SQLite|MongoDB|Oracle|SQL Server|CockroachDB|DynamoDB|Cassandra",
    ),
    "notes": (
        "note notes note-taking app notizen",
        "Notion|Obsidian|Evernote|Apple Notes|OneNote|Logseq|Roam|Joplin|Google Keep",
    ),
    "passwords": (
        "password passwords manager",
        "1Password|Bitwarden|LastPass|KeePass|KeePassXC|Dashlane|Proton Pass",
    ),
    "mail": (
        "mail email e-mail inbox client provider",
        "Gmail|Outlook|Proton Mail|ProtonMail|Fastmail|Thunderbird|Apple Mail",
    ),
    "chat": (
        "chat messaging messenger talk communicate team",
        "Slack|Microsoft Teams|Teams|Discord|Mattermost|Zulip|Rocket.Chat",
    ),
    "tickets": (
        "ticket tickets issue issues task tasks tracker tracking track",
        "Jira|Linear|Trello|Asana|YouTrack|ClickUp|GitHub Issues|Redmine",
    ),
    "tests": (
        "test tests testing unit framework runner",
        "Jest|Vitest|Mocha|pytest|unittest|nose|JUnit|RSpec",
    ),
    "packages": ("package packages manager dependencies",
    "npm|yarn|pnpm|Yarn|Bun|pip|Poetry|Pipenv|uv|conda"),
    "monitoring": ("monitoring monitor metrics", "Datadog|Grafana|New Relic|Prometheus|Zabbix|Nagios"),
    "music": (
        "music listen stream streaming musik musique música",
        "Spotify|Apple Music|Tidal|Deezer|YouTube Music|Qobuz",
    ),
    "phone": (
        "phone mobile smartphone handy telefon téléphone portable móvil teléfono",
        "iPhone|Pixel|Galaxy|Samsung|Fairphone|OnePlus|Xiaomi|Nokia|Motorola",
    ),
    "car": (
        "car drive drives auto wagen fahre voiture coche conduzco conduis",
        "Volvo|BMW|Audi|VW|Volkswagen|Golf|Toyota|Honda|Ford|Tesla|Kia|Hyundai|Skoda|Škoda|Renault|Peugeot"
        "|Citroën|Fiat|Mazda|Nissan|Subaru|Mercedes|Opel|Seat|Dacia|Polestar",
    ),
    "layout": ("keyboard layout layouts tastaturlayout", "QWERTY|QWERTZ|AZERTY|Dvorak|Colemak|Workman|Neo "
                                                         "2|Bépo"),
    "frontend": (
        "frontend front-end framework ui",
        "React|Vue|Svelte|SvelteKit|Angular|Next.js|Nuxt|SolidJS|Remix|Astro|Ember|Preact|Qwik|htmx",
    ),
    "state": ("state management managing frontend store", "Redux|Zustand|MobX|Jotai|Recoil|Pinia|Vuex|NgRx"
                                                          "|XState"),
    "bundling": ("bundler bundling bundle", "Webpack|webpack|Vite|esbuild|Rollup|Parcel|Turbopack|Rspack"),
    "queue": ("message messages queue queues broker event bus",
    "Kafka|RabbitMQ|NATS|Pulsar|SQS|Redis Streams|ActiveMQ"),
    "cache": ("cache caching", "Redis|Memcached|Valkey|Dragonfly|Hazelcast"),
    "repositories": (
        "code repository repositories repo repos version control source hosting hosted host",
        "GitHub|GitLab|Bitbucket|Gitea|Forgejo|Codeberg|Gerrit|Azure DevOps",
    ),
    "infrastructure": ("infrastructure code iac provisioning provision",
    "Terraform|OpenTofu|Pulumi|CloudFormation|CDK|Ansible"),
    "errors": ("error errors exception exceptions crash tracking reporting report",
    "Sentry|Rollbar|Bugsnag|Honeybadger|Raygun|Airbrake"),
    "auth": ("authentication auth login sso identity provider",
    "Auth0|Okta|Keycloak|Clerk|Cognito|Entra ID|Azure AD|Authentik"),
    "payments": ("payment payments provider processor processing process",
    "Stripe|PayPal|Adyen|Braintree|Mollie|Square|Klarna"),
    "analytics": ("analytics web",
    "Google Analytics|Plausible|Matomo|Amplitude|Mixpanel|PostHog|Fathom|Umami"),
    "flags": ("feature flag flags", "LaunchDarkly|Unleash|Flagsmith|ConfigCat|GrowthBook|Flipper"),
    "design": ("design designs mockup mockups tool ui", "Figma|Sketch|Adobe XD|Penpot|InVision|Framer"),
    "calls": ("video call calls meeting meetings conferencing",
    "Zoom|Google Meet|Meet|Microsoft Teams|Teams|Jitsi|Webex|Whereby"),
    "terminal": ("terminal emulator", "iTerm|iTerm2|Alacritty|kitty|Kitty|WezTerm|Ghostty|Windows "
                                      "Terminal|Konsole|Hyper"),
    "assistant": (
        "ai assistant chatbot coding llm",
        "ChatGPT|Claude|Claude Code|Gemini|Copilot|GitHub Copilot|Codex|Perplexity|Mistral|Cody",
    ),
    "todo": ("todo to-do todos list lists task tasks app", "Todoist|Things|TickTick|Microsoft To "
                                                           "Do|OmniFocus|Apple Reminders"),
    "engine": ("search engine searching", "Google|DuckDuckGo|Kagi|Bing|Ecosia|Startpage|Brave Search|Qwant"),
    "messenger": ("messenger chat messaging private", "WhatsApp|Signal|Telegram|iMessage|Threema"),
    "camera": ("camera kamera", "Canon|Nikon|Fujifilm|Leica|Olympus|Panasonic|Sony|Pentax|Ricoh"),
    "carrier": (
        "mobile phone carrier provider network plan",
        "Vodafone|O2|Telekom|AT&T|Verizon|T-Mobile|Orange|EE|Congstar|Three|giffgaff",
    ),
    "deployment": (
        "deploy deploys deployed deploying deployment deployments release releases tool",
        "Ansible|Argo CD|ArgoCD|Flux|Capistrano|Spinnaker|Octopus Deploy|Helm|Kamal|Chef|Puppet|Salt",
    ),
    "internet": ("internet provider isp broadband", "Comcast|Xfinity|Sonic|Spectrum|Virgin "
                                                    "Media|BT|Sky|Telekom|Vodafone|1&1|Starlink|AT&T"),
    "insurance": ("insurance insurer insured health", "Allianz|AXA|HUK|Generali|Zurich|Ergo|Aviva|Geico"
                                                      "|State Farm|TK|AOK|Barmer|Aetna|Cigna"),
    "colour": ("colour color", "red|green|blue|yellow|orange|purple|teal|turquoise|pink|black|white|grey|gray"
                               "|brown|violet|indigo|crimson"),
    "bank": (
        "bank banking account konto girokonto banque banco",
        "N26|Revolut|Monzo|Barclays|HSBC|Chase|Sparkasse|Commerzbank|ING|Lloyds|NatWest|Santander|Starling"
        "|DKB|BBVA",
    ),
}  # fmt: skip
# Verbs and the like by which one says of any of these that one has it.
_HAVING = """
    use uses used using have has got get own run runs running live lives manage managed keep kept write
    written do done move moved work works everything all always now main daily default prefer preferred
    favourite favorite choice go-to over hold holds held store stores stored buy bought gone went go goes like
    likes love best most benutze nutze verwende habe utilise uso tengo
"""
# Facets that are told by what somebody does; each with how a question asks for it.
_DEEDS = (
    (
        "manager",
        re.compile(
            r"\bI (?:\w+ly )?(?:now )?(?:report|answer)s? to (?=[A-Z])"
            r"|\b[Mm]y (?:\w+ )?(?:manager|boss|supervisor)(?: is| was| be|['’]s name is|:)"
            r"|^[A-Z]\w+(?: [A-Z]\w+)? (?:is|became|has become|took over as) (?:now )?my (?:\w+ )?(?:manager"
            r"|boss|supervisor)\b"
        ),
        re.compile(r"(?i)\bmy (?:\w+ )?(?:manager|boss|supervisor)\b|\bdo i (?:report|answer) to\b"),
    ),
    (
        "commute",
        re.compile(
            r"\b(?:I|We) (?:(?:usually|always|mostly|now) )?(?:take|catch|ride|drive|cycle|bike|walk|commute"
            r"|run|goe?|get|travel)s?\b[\w\s-]*\bto (?:work|the office)\b|\bmy commute\b",
            re.I,
        ),
        re.compile(
            r"(?i)\bhow do (?:i|we) (?:get|go|travel|commute|come)\b[\w\s]*\b(?:work|office)\b|\bcommute\b"
        ),
    ),
    (
        "rising",
        re.compile(r"\bI (?:\w+ )?(?:wakes? up|gets? up|rises?)\b|\bmy alarm\b[\w\s]*\d", re.I),
        re.compile(r"(?i)\b(?:do i (?:\w+ )?(?:wake|get) up|my alarm)\b"),
    ),
    (
        "pay",
        re.compile(
            r"\bmy (?:\w+ )?(?:salary|pay|wage)\b|\bI (?:now )?(?:earns?|makes?|gets? paid)\b(?=.*\d)"
            r"|\bI (?:was given|was granted|got|received) (?:a|my) (?:pay )?(?:raise|rise)\b(?=.*\d)"
            r"|\bpays? me\b(?=.*\d)",
            re.I,
        ),
        re.compile(
            r"(?i)\bmy (?:\w+ )?(?:salary|pay|wage)\b|\bdo i (?:earn|get paid)\b"
            r"|\bdo i make a (?:month|year)\b"
        ),
    ),
    (
        "diet",
        re.compile(
            r"\bI(?:['’]m| am| be| became| went| turned)? (?:\w+ )?(?:a )?(?:vegetarian|vegan"
            r"|pesc[ae]tarian)\b|\bI (?:\w+ ){0,2}eat(?:s|ing)? (?:\w+ )?(?:meat|fish|chicken|eggs|cheese"
            r"|dairy)\b|\bI (?:gave up|stopped eating|quit) meat\b",
            re.I,
        ),
        re.compile(r"(?i)\bi (?:a )?(?:vegetarian|vegan)\b|\bi eat meat\b|\bmy diet\b"),
    ),
    (
        "relationship",
        re.compile(
            r"\bI(?:['’](?:m|ve)| am| be| is| got| have been| has been)? (?:now |currently |happily "
            r"|recently |just )?(?:single|engaged|married|divorced|widowed|dating|seeing someone"
            r"|in a relationship)\b(?! (?:in|with (?:the|our|this)|out|parent|mother|father)\b)"
            r"|\b(?:and I|[Ww]e) (?:(?:have|are|just|recently|finally) )*(?:got |been )?(?:engaged|married"
            r"|divorced|separated|broke up|split up|broken up)\b"
            r"|\bI (?:have|found|got) a (?:new )?(?:girlfriend|boyfriend|fianc[ée]e?)\b"
            r"|\bI (?:broke|split) up with\b"
        ),
        re.compile(
            r"(?i)^(?:be i|am i|do i have|does i have) (?:still |currently )?(?:single|engaged|married"
            r"|divorced|dating|seeing \w+|in a relationship"
            r"|an? (?:girlfriend|boyfriend|partner|fianc[ée]e?|spouse))\b"
            r"|\bmy (?:relationship|marital) status\b"
        ),
    ),
    (
        "weight",
        re.compile(
            r"\bI (?:\w+ )?weighs?\b|\bmy weight\b|\bscales? (?:say|said|show|showed)\b(?=.*\d)", re.I
        ),
        re.compile(r"(?i)\bdo i weigh\b|\bmy weight\b"),
    ),
    (
        "home",
        re.compile(
            r"\b(?:I|We)(?:['’](?:m|re|ve)| (?:am|are|have|be))? (?:now |just |finally )?(?:lives?|living"
            r"|settled|moved)(?: with(?: \w+){1,2})?"
            r"(?: (?:in|into|to) (?:an?|the|our|my) (?:\w+ )?(?:flat|house|apartment|room|place"
            r"|home)(?: on [A-Z]\w+(?: [A-Z]\w+)?)?| on the \w+ floor)?"
            r" (?:in|into|to|of|at|near|outside) (?=[A-Z])"
            r"|\b(?:I|We)(?:['’]ve| have)? (?:got|found|bought|rent(?:ed)?) (?:my|our|an?) (?:\w+ )?(?:flat"
            r"|house|apartment|room|place|home) in (?=[A-Z])"
            r"|\b[Mm]y (?:home |postal |street |current |new )?address(?: is| was| be|:) (?=[A-Z0-9])"
        ),
        re.compile(
            r"(?i)^where (?:do|am) (?:i|we) (?:currently )?(?:live|living|based)\b"
            r"|\bmy (?:home |postal |street |current )?address\b"
        ),
    ),
    (
        "work",
        re.compile(
            r"(?:\bI (?:have |just )?j|^J)oined an? (?:\w+ )?(?:start-?up|company|firm|agency|bank|studio)\b"
        ),
        re.compile(
            r"(?i)^(?:where|who|for whom|for which company) do i (?:currently )?work\b|\bmy employer\b"
        ),
    ),
)
# What is said of some days, of a time that is over or of one of several things to do.
_OF_A_PART = re.compile(
    r"(?i)\b(?:only|weekends?|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|summer|winter|holidays?|abroad"
    r"|once)\b|\bon the \w+ (?:project|team)\b"
)
_INSTEAD = re.compile(r",\s*(?:and\s+)?not\s+[^,.;]+")  # "pnpm, not npm" denies nothing of pnpm
# A question of this kind asks for no product.
_OF_WAYS = re.compile(r"(?i)\s*(?:how|when|why|who|wie|wann|warum|wer|cómo|cuándo|quién|comment|quand|qui)\b")
_MODEL = r"(?:\s+(?:[A-Z]\w*|\w*\d\w*))*"  # "Volvo V60", "iPhone 15 Pro"


class _Product(NamedTuple):
    """A facet by what its values are called."""

    name: str
    asked: frozenset[str]  # the terms by which it is asked for
    form: re.Pattern[str]
    clues: frozenset[str]  # the terms that its statements may hold


@cache
def _products() -> tuple[_Product, ...]:
    forms = []
    for name, (words, products) in _PRODUCTS.items():
        alternatives = sorted(map(re.escape, products.split("|")), key=len, reverse=True)
        form = re.compile(rf"(?<![\w-])(?:{'|'.join(alternatives)})(?![\w-]){_MODEL}")
        forms.append(
            _Product(
                name,
                frozenset(terms(words)),
                form,
                frozenset(terms(f"{words} {products.replace('|', ' ')}")) - STOP_WORDS,
            )
        )
    return tuple(forms)


@cache
def _having() -> frozenset[str]:
    return frozenset(terms(_HAVING)) | STOP_WORDS | {"i", "s", "ve", "m", "user"}


@lru_cache(maxsize=4096)  # a search asks it of its best hits, mostly the same ones again
def facets(text: str, content: frozenset[str]) -> frozenset[str]:
    """What a statement of somebody about themselves tells of; `content` are its terms without what says of a
    change.
    """
    if limited(text) or wishes(text) or _OF_A_PART.search(text):
        return frozenset()
    sentence = first_person(text)
    names = {name for name, form, _ in _DEEDS if form.search(sentence)}
    if denies(_INSTEAD.sub("", text)):
        return frozenset(names & {"diet"})
    product = next((product for product in _products() if _is_of_product(text, content, product)), None)
    if product is not None:
        return frozenset((product.name,))  # who has moved over to Brave has not moved house
    return frozenset(names | (places(text) & {"home", "work"}))


def _is_of_product(text: str, content: frozenset[str], product: _Product) -> bool:
    """Whether a statement tells of one and says nothing else."""
    if not product.form.search(text):
        return False
    values = frozenset(terms(" ".join(product.form.findall(text))))
    return content - values - product.asked <= _having() | silent_terms(text)


def asked_facets(query: str, content: frozenset[str]) -> frozenset[str]:
    """The facets that a question asks for, and nothing besides; `content` as of `facets`."""
    sentence = first_person(query)
    names = {name for name, _, question in _DEEDS if question.search(sentence)}
    asked_terms = content - _having() - silent_terms(query)
    if asked_terms and not _OF_WAYS.match(query):
        names |= {product.name for product in _products() if asked_terms <= product.asked}
    return frozenset(names)


@cache
def facet_clues(name: str) -> frozenset[str]:
    """Terms of which a statement of a facet holds one."""
    for product in _products():
        if product.name == name:
            return product.clues
    return frozenset(terms(_CLUES[name])) - STOP_WORDS


_CLUES = {
    "manager": "manager boss supervisor report reports answer answers",
    "commute": "work office commute",
    "rising": "wake wakes get gets rise alarm",
    "pay": "salary pay pays wage earn earns make makes paid raise rise",
    "diet": "vegetarian vegan pescatarian meat fish chicken eggs cheese dairy",
    "relationship": "single engaged married divorced widowed dating seeing relationship separated broke "
    "broken split girlfriend boyfriend fiancé fiancée fiancee",
    "weight": "weigh weighs weight scale scales",
    "home": "address live lives living moved relocated settled based flat house apartment home place room "
    "rent bought",
    "work": "work works working started joined employed hired job company startup",
}
