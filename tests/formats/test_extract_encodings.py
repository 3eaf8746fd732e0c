"""Text encodings are detected."""

import codecs

import pytest

from ctx.formats.encoding import decode

FRENCH = "Les élèves étudient très sérieusement à l'école; ça c'était déjà prévu. "
RUSSIAN = "Сервер читает настройки один раз при запуске и больше никогда. "
JAPANESE = "サーバーは起動時に設定ファイルを一度だけ読み込みます。検索は高速です。"
CHINESE = "服务器在启动时读取一次配置文件，之后不再读取。搜索速度很快。"
KOREAN = "서버는 시작할 때 설정 파일을 한 번만 읽습니다. 검색은 빠릅니다. "
POLISH = "Zażółć gęślą jaźń. Wszystkie pliki są wczytywane przy każdym uruchomieniu usługi. "
HUNGARIAN = "Árvíztűrő tükörfúrógép és egy őszi rőt levél. "
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Soubory se načítají při každém spuštění. "
HEBREW = "השרת קורא את ההגדרות פעם אחת בלבד בעת ההפעלה, והחיפוש מהיר מאוד. "
TURKISH = "Sunucu ayarları yalnızca başlangıçta bir kez okur; arama çok hızlıdır ve değişiklikler görünür. "


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (FRENCH, "latin-1"),
        ("Größe und Länge der Straße müssen überprüft werden. ", "latin-1"),
        ("Servern läser inställningarna en gång. Åtgärder är möjliga. ", "latin-1"),
        ("a naïve approach in one English sentence", "latin-1"),
        ("The server’s “own” settings – read once…", "cp1252"),
        (POLISH, "cp1250"),
        (POLISH, "iso8859-2"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (RUSSIAN + "Все файлы индексируются заново. ", "koi8-r"),
        ("Ένας διακομιστής διαβάζει τις ρυθμίσεις μία φορά κατά την εκκίνηση. ", "cp1253"),
        ("Þjónninn les stillingarnar einu sinni við ræsingu; leitin er mjög hröð og örugg. ", "cp1252"),
        ("Server čte nastavení jednou při spuštění; vyhledávání je velmi rychlé a spolehlivé. ", "cp1250"),
        (HEBREW, "cp1255"),
        (HEBREW, "iso8859-8"),
        (TURKISH, "cp1254"),
        (TURKISH, "iso8859-9"),
        ("# Kurulum\n\nÖnce paketi yükleyin, sonra sunucuyu başlatın.\n", "cp1254"),
        ("değişiklik günlüğü", "cp1254"),
        ("Ég tala íslensku við þig", "cp1252"),
        ("רשימת קניות: חלב, לחם, ביצים", "cp1255"),
        ("התקנה של Docker בשרת Ubuntu 22.04 LTS, בעזרת סקריפט קצר", "iso8859-8"),
        ("На столе лежит лист бумаги. ", "cp1251"),
        ("Список покупок: хлеб, молоко, сыр, яблоки.", "cp1251"),
        ("Пользователь должен иметь права администратора. ", "cp1251"),
        ("Гібралтарський фунт і його курс. ", "cp1251"),
        ("# config v1.2\nserver = alpha  # Москва, Россия\n", "cp1251"),
        ("אישור התקנה של המערכת בשרת. ", "cp1255"),
        ("il file è vuoto, la rete è giù, e il disco è pieno: la riga è più lunga", "cp1252"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (CHINESE, "gbk"),
        (KOREAN, "euc_kr"),
        (HUNGARIAN, "cp1250"),
        (HUNGARIAN, "iso8859-2"),
        (CZECH, "iso8859-2"),
        (CZECH, "cp1250"),
        ("Fişierele sunt citite la fiecare pornire, iar căutarea este rapidă. ", "iso8859-2"),
        ("Nameščanje sistema je končano, strežnik pa teče v ozadju že več ur. ", "iso8859-2"),
        ("Українська мова є державною мовою, і її вивчають у школах. ", "koi8-u"),
        ("Ο διακομιστής διαβάζει τις ρυθμίσεις. ", "iso8859-7"),
        (CHINESE, "gb18030"),
        ("設定檔在啟動時讀取一次，之後不再讀取。搜尋速度很快。", "big5"),
        ("الخادم يقرأ الإعدادات مرة واحدة عند التشغيل، والبحث سريع جدا. ", "cp1256"),
        ("© 2020 José García, naïve café", "latin-1"),
        ("It’s “fine”", "cp1252"),
        ("20 °C", "latin-1"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "iso8859-2"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250"),
        ("Größe, Straße, Übung für alle; schöne Grüße. ", "cp437"),
        ("Größe, Straße, Übung für alle; schöne Grüße. ", "cp850"),
        (FRENCH, "cp437"),
        (FRENCH, "mac_roman"),
        (RUSSIAN, "cp866"),
        (CZECH, "cp852"),
    ],
)
@pytest.mark.parametrize("times", [1, 30, 1000])  # more than the sample
def test_a_legacy_encoding_is_found_from_the_text_alone(text: str, encoding: str, times: int) -> None:
    assert decode((text * times).encode(encoding)) == text * times


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_decides_and_is_removed(mark: bytes, encoding: str) -> None:
    assert decode(mark + "naïve 漢字".encode(encoding)) == "naïve 漢字"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_text_without_a_mark_is_text(encoding: str) -> None:
    text = "A page of words with a naïve 漢字 within.\n" * 5
    assert decode(text.encode(encoding)) == text


def test_a_declaration_in_the_text_is_believed() -> None:
    assert decode("# -*- coding: koi8-r -*-\nпривет".encode("koi8-r")) == "# -*- coding: koi8-r -*-\nпривет"
    assert (
        decode('<meta charset="windows-1251"><p>да'.encode("cp1251")) == '<meta charset="windows-1251"><p>да'
    )


def test_a_declared_charset_of_the_connector_is_believed() -> None:
    assert decode("да".encode("cp1251"), "windows-1251") == "да"


@pytest.mark.parametrize("name", ["no-such", "utf-16", "idna", "hex", "unicode_escape"])
def test_a_wrong_declaration_is_ignored(name: str) -> None:
    assert decode(f"coding: {name} caf\xe9 d\xe9j\xe0".encode("latin-1")) == f"coding: {name} café déjà"


def test_utf8_with_a_few_bad_bytes_stays_utf8() -> None:
    assert decode("déjà vu à l'été".encode() + b"\xff") == "déjà vu à l'été\ufffd"


@pytest.mark.parametrize("other", ["latin-1", "cp1250"])
def test_lines_of_utf8_among_others_are_read_each_as_what_it_is(other: str) -> None:
    plain = "nothing but ASCII is said in nearly all of these lines\n" * 40
    author = "Author: Jörg Müller, für alle\n" if other == "latin-1" else f"Autor: {POLISH}\n"
    data = plain.encode() + "Entwickler: Jörg Müller\n".encode() + author.encode(other) + plain.encode()
    assert decode(data) == f"{plain}Entwickler: Jörg Müller\n{author}{plain}"


def test_binary_data_is_no_text() -> None:
    assert decode(b"\x00\x01\x02\x03" * 100) is None
    assert decode(b"\x00" * 64) is None


@pytest.mark.parametrize(
    ("declared", "text", "encoding"),
    [
        ("iso-8859-1", "“own” settings – 5 €", "cp1252"),
        ("iso-8859-9", "“değişiklik” – 5 €", "cp1254"),
        ("gb2312", "朱镕基", "gbk"),
        ("shift_jis", "①株式会社", "cp932"),
        ("ks_c_5601-1987", "똠방각하", "cp949"),
    ],
)
def test_a_declared_encoding_includes_what_programs_write_under_its_name(
    declared: str, text: str, encoding: str
) -> None:
    assert decode(text.encode(encoding), declared) == text
