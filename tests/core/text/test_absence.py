"""Words for nothing, language by language, and the names that are written like them."""

from __future__ import annotations

import time
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from hpd_core.text.absence import _FOLDED, Reading, read
from tests.tables import table

WORDS = {
    "signs": "-; --; ---; –; —; ―; －; ー; ?; ??; ？; .; ...; …; /; _; *; #; (); {}",
    "programs": "null; NULL; <null>; (null); nil; NaN; <NA>; #N/A; #REF!; #VALUE!; \\N; undefined",
    "abbreviations": "N/A; n/a; n / a; n\\a; N.A.; n.a.; n.a; n. a.; NA; N/a.; TBD; TBC; T.B.A.",
    "English": "unknown; Not Specified; NOT SPECIFIED; not_specified; Not-Available; none; nothing; unspecified; "
    "Does not apply; not applicable; see picture; see description; See product description; as shown; "
    "To be determined; information not available; No information; not mentioned in the text; "
    "not explicitly stated; no details given; The text does not specify; cannot be determined; None found; "
    "N/A (not available); unknown / not specified; none, unknown; Not stated.; please see the image; missing; "
    "not collected; not in the title; No mention of brand; value not found; Details unavailable; unk; UNK.; "
    "None / N/A; none/n/a; N/A / unknown; none of the above; Nothing mentioned; None given.; can not be determined",
    "sentences": "The brand is not specified in the text; Unable to determine from the provided text; "
    "cannot be determined from the text; The brand cannot be determined from the given information.; "
    "I cannot determine the brand from the given text.; We were unable to find the brand; The brand is unknown; "
    "The product's brand is not mentioned in the title or description; The material was not explicitly stated.; "
    "There is no information available about the brand; There is no mention of the brand in the text; "
    "The provided text does not contain information about the brand; Not enough information to determine the brand; "
    "It is not possible to determine the brand; brand name not given; Not specified - the text does not mention it",
    "German sentences": "keine Angabe vorhanden; Keine Angaben im Text; nicht in der Beschreibung angegeben; "
    "keine Informationen verfuegbar; Die Brand ist nicht angegeben; Die Brand wird im Text nicht genannt",
    "other sentences": "non spécifié dans le texte; aucune information disponible; La brand n'est pas précisée; "
    "no especificado en el texto; La brand no está especificada; non specificato nel testo; Il brand non è indicato; "
    "não especificado no texto; niet vermeld in de tekst; nie podano w opisie; не указано в описании; 本文に記載なし; "
    "文中未提及; 텍스트에 정보 없음",
    "German": "keine Angabe; k.A.; k. A.; K.A; nicht angegeben; unbekannt; entfällt; siehe Beschreibung",
    "German without umlauts": "nicht verfuegbar; entfaellt; nicht verfügbar",
    "Spanish": "no especificado; Sin especificar; desconocido; no aplica; ver descripción; ver descripcion",
    "French": "non spécifié; NON SPECIFIE; non-spécifié; inconnue; sans objet; pas d’information; néant",
    "Japanese": "不明; 記載なし; 該当なし; なし; 未定; （なし）; 画像参照",
    "Arabic": "غير محدد; غير معروف; لا يوجد; غَيْر مُحَدَّد; لا ينطبق",
    "Hebrew": "לא ידוע; לא צוין; לא רלוונטי; אין מידע; לֹא יָדוּעַ",
    "Italian": "non specificato; sconosciuta; n.d.; N/D; nessuna informazione",
    "Portuguese": "não especificado; nao informado; NÃO SE APLICA; desconhecida",
    "Dutch": "onbekend; n.v.t.; niet van toepassing; geen",
    "Polish": "nieznany; brak danych; nie dotyczy; b.d.; nie określono",
    "Nordic": "okänd; ej angivet; ukendt; ikke angitt; ei tiedossa",
    "Czech": "neznámý; neuvedeno; není k dispozici",
    "Russian": "неизвестно; не указано; нет данных; Н/Д; см. описание",
    "Turkish": "bilinmiyor; BİLİNMİYOR; belirtilmemiş; yok",
    "Greek": "άγνωστο; ΑΓΝΩΣΤΟ; δεν αναφέρεται",
    "Chinese": "未知; 无; 不详; 不適用; 见描述",
    "Korean": "알 수 없음; 해당 없음; 없음; 상세페이지 참조",
    "written around": "(none); [not specified]; <unknown>; “Unknown”; 'n/a'; **N/A**; N/A,; \u200bnone\u200b; ＮＡ",
    "entities": "&nbsp;; &mdash;; N&#47;A; &lt;none&gt;",
    "of the attribute": "Unknown brand; brand unknown; Brand not specified; no brand specified; Brand: n/a; [Brand]",
}
VALUES = (
    "Not Your Mother's; NA-KD; None Such; Unknown Pleasures; No Brand; unbranded; Generic; No Name; no; "
    "Nada Surf; See Kai Run; see-through; Nilfisk; Naked; Keine Ahnung GmbH; Brakspear; Brand; Brand X; S/M; "
    "A/C; N/O; ND; N; +; ★; ✓; °; %; 0; -5; n/a 5; none-stick; empty; not included; nothing but cotton; "
    "ノーブランド; The North Face; The Unknown; The Book of Not Known; The Truth Is Not Out There; unk mug; "
    "unknown/kestrel; s/n/m; in the text; vorhanden; disponible; the product; Nothing But Thieves; clear; "
    "this is not known pleasures; unknown soldier; 梨; 無印良品; Нетто; Geenoa; not available in stores near you, call"
)


@table(("language", "words"), WORDS.items())
def test_words_for_nothing(language: str, words: str) -> None:
    assert [word for word in words.split("; ") if read(word, "Brand") is not Reading.NOTHING] == []
    without_name = {"title": "a mug of clay"}
    assert [word for word in words.split("; ") if read(word, "Brand", without_name) is not Reading.NOTHING] == []


@table("value", [*VALUES.split("; "), "not specified " * 8])
def test_a_part_is_no_word_for_nothing(value: str) -> None:
    assert read(value, "Brand") is Reading.VALUE


@given(
    phrase=st.sampled_from(sorted(_FOLDED)),
    form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
    around=st.sampled_from(["{}", " {} ", "({})", '"{}"', "[{}]", "{}.", "«{}»", "- {} -", "<{}>"]),
    write=st.sampled_from(
        [str, str.upper, str.title, lambda text: text.replace(" ", "  "), lambda text: text.replace(" ", "_")]
    ),
)
def test_however_it_is_written(phrase: str, form: str, around: str, write: object) -> None:
    assert callable(write)
    written = unicodedata.normalize(form, around.format(write(phrase)))  # type: ignore[arg-type]
    assert read(written, "Brand") is Reading.NOTHING


@table(
    ("name", "texts", "reading"),
    [
        ("Nothing", ["Nothing Phone (2), 8 GB"], Reading.VALUE),
        ("Nothing", ["Phone (2) by Nothing, black"], Reading.VALUE),
        ("Nothing", ["Nothing® Phone"], Reading.VALUE),
        ("NA", ["Adapter, ships to NA and EU"], Reading.VALUE),
        ("Unknown", ["The Unknown, a novel"], Reading.VALUE),
        ("Brak", ["Brak Show T-shirt"], Reading.VALUE),
        ("Nothing", ["New Nothing Phone (2)"], Reading.VALUE),
        ("NOTHING", ["NOTHING PHONE (2)"], Reading.VALUE),
        ("Unknown", ["Brand: Unknown. Unknown Pleasures mug"], Reading.NOTHING),
        ("Unknown", ["Kestrel brand. Unknown Pleasures mug"], Reading.VALUE),
        ("Keine", ["Keine Batterien enthalten"], Reading.NOTHING),
        ("None", ["Pattern None Color Blue"], Reading.UNCLEAR),
        ("None", ["Strap None Buckle Gold"], Reading.UNCLEAR),
        ("Unknown", ["Unknown Artist Print"], Reading.UNCLEAR),
        ("Nothing", ["Nothing Beats This Mug"], Reading.UNCLEAR),
        ("NONE", ["NONE IN STOCK"], Reading.UNCLEAR),
        ("Nothing", ["Brand: Nothing"], Reading.NOTHING),
        ("None", ["Brand None Colour red"], Reading.NOTHING),
        ("Unknown", ["mug, Unknown brand"], Reading.NOTHING),
        ("NA", ["red | NA | XL"], Reading.NOTHING),
        ("NA", ["ships to NA and EU", "Brand: NA"], Reading.NOTHING),
        ("NA", ["NA-KD dress"], Reading.NOTHING),
        ("Nil", ["a mug"], Reading.NOTHING),
        ("nothing", ["Nothing Phone (2)"], Reading.NOTHING),
        ("N/A", ["Kestrel N/A mug"], Reading.NOTHING),
        ("None", ["None of these parts is toxic"], Reading.UNCLEAR),
        ("Nothing", ["NOTHING PHONE (2)"], Reading.UNCLEAR),
    ],
)
def test_a_name_is_one_where_the_text_spells_it_so(name: str, texts: list[str], reading: Reading) -> None:
    fields = {str(number): text for number, text in enumerate(texts)}
    assert read(name, "Brand", fields) is reading
    assert read(name, "Brand") is Reading.NOTHING, "nobody knows the text"


@table("line", ["Compatible: None, mug {}; ", "Größe: None, mug {} für Tee; "])
def test_a_long_line_is_read_in_linear_time(line: str) -> None:
    text = "".join(map(line.format, range(8000)))
    start = time.process_time()
    assert read("None", "Brand", {"title": text}) is Reading.NOTHING
    assert time.process_time() - start < 3, "slices of the whole line at every place take half a minute"
