"""Words for nothing: how texts, models and people write that there is no value.

One rule for extraction, labelling, gold and training. Only a whole item counts, never a part of it ("Not Your Mother's"
is a brand), and a member of an enum is a value whatever it says: who calls looks for members first.

    "N/A", "not specified", "k.A.", "--"    nothing, however it is written: letters' case, accents, spaces, brackets
    "Unknown", "NA", "None"                 one word may be a name, too: it is one where the text spells it as a name,
                                            with the same capitals, among other words and not behind a label
    "unbranded", "No Brand", "ノーブランド"   a value: that there is no brand is an answer, and shops list it as one
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum, auto
from functools import lru_cache

# By language: those of the sample catalog first, then others that catalogs are written in. Folded before use.
_PHRASES: Mapping[str, str] = {
    "programs": "null, nil, nan, none, unk, undefined, [object Object], n/a n/a, no value",
    "English": "nothing, unknown, unspecified, undisclosed, unavailable, undetermined, undeclared, unstated, na, n/a, "
    "tbd, tbc, tba, t.b.d., t.b.c., t.b.a., missing value, value missing, does not apply, doesn't apply, do not apply, "
    "don't know, I don't know, I do not know, unsure, not sure, unclear, missing, restricted access, "
    "no answer, not enough information, insufficient information, "
    "insufficient data, information missing, information not available, data not available, no further information, "
    "currently unknown, none of the above, none of these, none of those, "
    "to be determined, to be confirmed, to be announced, to be defined, to be advised, as pictured, as shown, "
    "as described, as photo, as picture, as image, as picture shown, as the picture shown, as picture shows, "
    "as the picture shows, as in the picture, as shown in the picture",
    "German": "unbekannt, nicht bekannt, kein, keine, keiner, keines, nichts, k.A., o.A., n.v., n.b., keine Angabe, "
    "keine Angaben, ohne Angabe, ohne Angaben, keine Daten, keine Information, keine Informationen, keine Info, "
    "keine Infos, kein Wert, keine Werte, kein Eintrag, fehlt, Angabe fehlt, folgt, wird nachgereicht, entfällt, "
    "nicht angegeben, nicht spezifiziert, nicht verfügbar, nicht vorhanden, nicht zutreffend, nicht anwendbar, "
    "nicht relevant, nicht genannt, nicht erwähnt, nicht definiert, nicht bestimmt, nicht ermittelbar, "
    "nicht bestimmbar, nicht hinterlegt, nicht bezeichnet, nicht festgelegt, trifft nicht zu, unspezifiziert, "
    "undefiniert, siehe Bild, siehe Bilder, siehe Foto, siehe Fotos, siehe Abbildung, siehe Beschreibung, "
    "siehe Artikelbeschreibung, siehe Produktbeschreibung, siehe Text, siehe Titel, siehe oben, siehe unten, "
    "siehe Details, siehe Datenblatt, s. Beschreibung, s. Bild, wie abgebildet, wie beschrieben, wie auf dem Bild, "
    "wie auf den Bildern",
    "Spanish": "no está especificado, no está especificada, no está disponible, no está indicado, no está indicada, "
    "no se puede determinar, "
    "desconocido, desconocida, se desconoce, ninguno, ninguna, nada, n/d, no especificado, "
    "no especificada, sin especificar, no se especifica, no indicado, no indicada, no se indica, no disponible, "
    "no aplica, no aplicable, no procede, no consta, no corresponde, sin datos, sin dato, sin información, "
    "no hay información, no mencionado, no mencionada, no se menciona, no definido, no definida, no conocido, "
    "por determinar, por definir, por confirmar, ver imagen, ver imágenes, ver foto, ver fotos, ver descripción, "
    "ver detalles, ver título, según imagen, según foto, como en la foto, como en la imagen",
    "French": "n'est pas spécifié, n'est pas spécifiée, n'est pas précisé, n'est pas précisée, n'est pas indiqué, "
    "n'est pas indiquée, n'est pas mentionné, n'est pas mentionnée, "
    "inconnu, inconnue, aucun, aucune, néant, rien, n.d., non spécifié, non spécifiée, non précisé, "
    "non précisée, non indiqué, non indiquée, non renseigné, non renseignée, non communiqué, non communiquée, "
    "non disponible, non applicable, sans objet, non mentionné, non mentionnée, non défini, non définie, "
    "non déterminé, non déterminée, non connu, non connue, non concerné, non concernée, pas spécifié, pas précisé, "
    "pas indiqué, pas disponible, pas d'information, pas d'informations, pas de données, aucune information, "
    "aucune donnée, ne s'applique pas, à définir, à déterminer, à confirmer, à préciser, voir photo, voir photos, "
    "voir image, voir images, voir description, voir descriptif, voir titre, voir détails, voir ci-dessous, "
    "voir ci-dessus, comme sur la photo, selon photo",
    "Japanese": "不明, 未定, 無し, なし, 無, 該当なし, 該当無し, 該当せず, 記載なし, 記載無し, 情報なし, 情報無し, "
    "未記載, 未設定, 未入力, 未指定, 指定なし, 指定無し, 表記なし, 表示なし, データなし, 未確認, 非公開, 未公開, "
    "特になし, 特に無し, 適用外, 適用なし, 対象外, わからない, わかりません, 画像参照, 写真参照, 説明参照, 説明文参照, "
    "商品説明参照, 画像をご参照ください, 画像をご覧ください, 商品説明をご参照ください, 記載されていません, "
    "記載がありません, 記載がない, 情報がありません, 画像の通り",
    "Arabic": "غير معروف, غير معروفة, غير محدد, غير محددة, غير متوفر, غير متوفرة, غير متاح, غير متاحة, غير مذكور, "
    "غير مذكورة, غير موجود, غير موجودة, لا يوجد, لا توجد, لا ينطبق, لا تنطبق, لا شيء, مجهول, مجهولة, "
    "غير قابل للتطبيق, لا توجد معلومات, لا يوجد معلومات, انظر الصورة, انظر الوصف, راجع الوصف, كما في الصورة, "
    "غ/م, لم يذكر, لم يحدد",
    "Hebrew": "לא ידוע, לא ידועה, לא צוין, לא צוינה, לא צויין, לא מצוין, לא רלוונטי, לא רלוונטית, אין, אין מידע, "
    "אין נתונים, לא זמין, לא זמינה, לא קיים, לא קיימת, לא מוגדר, לא מוגדרת, לא נמסר, לא הוגדר, לא חל, ראה תמונה, "
    "ראו תמונה, ראה תיאור, ראו תיאור, כמו בתמונה, ל/ר",
    "Italian": "non è specificato, non è specificata, non è indicato, non è indicata, non è disponibile, "
    "sconosciuto, sconosciuta, nessuno, nessuna, niente, nulla, n.d., non specificato, non specificata, "
    "non indicato, non indicata, non disponibile, non applicabile, non si applica, non noto, non nota, non definito, "
    "non definita, non dichiarato, non dichiarata, non menzionato, non fornito, nessuna informazione, nessun dato, "
    "da definire, da determinare, da confermare, vedi foto, vedi immagine, vedi immagini, vedi descrizione, "
    "vedere descrizione, vedere foto, come da foto, come in foto",
    "Portuguese": "não está especificado, não está especificada, não foi informado, não foi informada, "
    "não foi especificado, desconhecido, desconhecida, nenhum, nenhuma, nada, n/d, não especificado, não especificada, "
    "não informado, não informada, não indicado, não indicada, não disponível, não aplicável, não se aplica, "
    "não consta, não definido, não definida, não mencionado, não mencionada, não identificado, sem informação, "
    "sem informações, sem dados, sem especificação, indisponível, a definir, a confirmar, ver foto, ver imagem, "
    "ver descrição, veja a descrição, conforme imagem, conforme foto",
    "Dutch": "onbekend, geen, niets, n.v.t., nvt, n.b., niet opgegeven, niet gespecificeerd, niet bekend, "
    "niet van toepassing, niet beschikbaar, niet vermeld, niet aangegeven, niet gedefinieerd, niet ingevuld, "
    "niet genoemd, geen informatie, geen gegevens, geen opgave, geen data, nader te bepalen, zie foto, zie foto's, "
    "zie afbeelding, zie beschrijving, zie omschrijving",
    "Polish": "nieznany, nieznana, nieznane, brak, b.d., n.d., brak danych, brak informacji, nie dotyczy, nie podano, "
    "nie określono, nieokreślony, nieokreślona, nieokreślone, niedostępny, niedostępne, nie wiadomo, "
    "nie sprecyzowano, nie zdefiniowano, do ustalenia, zobacz opis, patrz opis, patrz zdjęcie, zobacz zdjęcie, "
    "jak na zdjęciu",
    "Swedish": "okänd, okänt, ingen, inget, inga, ej angivet, ej angiven, ej specificerad, ej specificerat, "
    "inte angivet, inte specificerat, inte tillämpligt, ej tillämpligt, ej tillämplig, uppgift saknas, ingen uppgift, "
    "saknas, ej tillgänglig, ej tillgängligt, inte tillgänglig, se bild, se beskrivning",
    "Danish and Norwegian": "ukendt, ukjent, ingen, intet, ikke angivet, ikke angitt, ikke oplyst, ikke oppgitt, "
    "ikke specificeret, ikke spesifisert, ikke relevant, ikke tilgængelig, ikke tilgjengelig, ikke aktuelt, "
    "ikke kjent, ikke kendt, ikke anvendelig, ingen oplysninger, ingen opplysninger, mangler, se billede, se bilde, "
    "se beskrivelse",
    "Finnish": "tuntematon, ei tiedossa, ei määritelty, ei ilmoitettu, ei saatavilla, ei sovellettavissa, ei mitään, "
    "ei tietoa, ei käytettävissä, katso kuva, katso kuvaus",
    "Czech and Slovak": "neznámý, neznámá, neznáme, žádný, žádná, žádné, neuvedeno, neuvedené, neuvádí se, "
    "nespecifikováno, nešpecifikované, neurčeno, neurčené, není k dispozici, nie je k dispozícii, nie je uvedené, "
    "nevztahuje se, netýká se, bez údaje, bez údajov, nedefinováno, nezadáno, nezadané, viz popis, viz foto, "
    "viz obrázek, viď popis",
    "Russian": "неизвестно, неизвестен, неизвестна, неизвестный, не известно, нет, нет данных, нет информации, н/д, "
    "не указано, не указан, не указана, не указаны, не определено, не определён, не применимо, неприменимо, "
    "не задано, не задан, отсутствует, недоступно, не доступно, уточняется, см. описание, см. фото, смотри описание, "
    "смотрите описание, смотри фото, как на фото",
    "Ukrainian": "невідомо, невідомий, невідома, немає, немає даних, не вказано, не вказаний, не визначено, "
    "не застосовується, відсутнє, відсутній, недоступно, див. опис, дивіться опис, як на фото",
    "Turkish": "bilinmiyor, bilinmeyen, yok, hiçbiri, belirtilmemiş, belirtilmedi, belirsiz, mevcut değil, "
    "uygulanamaz, geçerli değil, bilgi yok, veri yok, tanımlanmamış, resme bakın, açıklamaya bakın, "
    "görseldeki gibi, resimdeki gibi",
    "Greek": "άγνωστο, άγνωστος, άγνωστη, κανένα, καμία, κανένας, τίποτα, δ/υ, μη διαθέσιμο, μη διαθέσιμη, "
    "δεν αναφέρεται, δεν διευκρινίζεται, δεν έχει οριστεί, δεν ισχύει, δεν εφαρμόζεται, δεν υπάρχει, "
    "μη καθορισμένο, χωρίς στοιχεία, δεν υπάρχουν στοιχεία",
    "Hungarian": "ismeretlen, nincs, nincs adat, nincs megadva, nincs információ, nem ismert, nem elérhető, "
    "nem alkalmazható, nem meghatározott, nem vonatkozik, lásd a leírást, lásd a képet, semmi",
    "Romanian": "necunoscut, necunoscută, niciunul, niciuna, nimic, nespecificat, nespecificată, nedefinit, "
    "nu este specificat, nu este disponibil, indisponibil, indisponibilă, nu se aplică, nu este cazul, "
    "fără informații, fără date, vezi descrierea, vezi poza, ca în poză",
    "Chinese": "未知, 无, 無, 不详, 不詳, 不明, 暂无, 暫無, 暂无信息, 没有, 沒有, 不适用, 不適用, 未指定, 未注明, "
    "未註明, 未提供, 未说明, 未說明, 未标明, 未提及, 无数据, 無資料, 无信息, 待定, 如图, 如圖, 如图所示, 如圖所示, "
    "见图, 見圖, 见描述, 见详情, 详见描述, 详见图片",
    "Korean": "없음, 미상, 불명, 알 수 없음, 알수없음, 해당 없음, 해당없음, 해당사항 없음, 해당 사항 없음, 미정, "
    "정보 없음, 정보없음, 미지정, 미기재, 지정되지 않음, 명시되지 않음, 미표기, 자료 없음, 상세설명 참조, "
    "상세 설명 참조, 상품상세 참조, 상품 상세 참조, 상세페이지 참조, 상세페이지 참고, 이미지 참조",
}

# Where models and shops say that they looked.
_PLACES: Mapping[str, str] = {
    "German": "im Text, im Titel, im Produkttext, im Produkttitel, in der Beschreibung, in der Produktbeschreibung, "
    "vorhanden, verfügbar, gefunden, hinterlegt, enthalten",
    "Spanish": "en el texto, en el título, en la descripción, en el producto, disponible, disponibles",
    "French": "dans le texte, dans le titre, dans la description, sur le produit, disponible, disponibles, fournie, "
    "trouvée",
    "Italian": "nel testo, nel titolo, nella descrizione, disponibile, disponibili",
    "Portuguese": "no texto, no título, na descrição, disponível, disponíveis",
    "Dutch": "in de tekst, in de titel, in de beschrijving, in de omschrijving, beschikbaar",
    "Polish": "w tekście, w tytule, w opisie",
    "Nordic": "i texten, i titeln, i beskrivningen, i teksten, i titlen, i tittelen, i beskrivelsen",
    "Russian": "в тексте, в описании, в названии",
    "Japanese": "本文に, 本文中に, テキストに, 商品名に, 商品説明に, 説明文に, 説明に",
    "Chinese": "文中, 文本中, 标题中, 描述中, 商品描述中",
    "Korean": "텍스트에, 본문에, 제목에, 설명에, 상품명에",
}

_BEHIND_NOT = (
    "applicable|assigned|available|collected|declared|defined|described|detailed|determined|disclosed|documented|entered|found|"
    "given|identified|indicated|known|listed|mentioned|noted|present|provided|published|recorded|relevant|reported|"
    "shown|specified|stated|visible"
)
_SAID = "described|detailed|determined|disclosed|identified|indicated|listed|mentioned|provided|specified|stated"
_NOUNS = "information|info|data|details?|values?|entry|mention|indication|specifications?"
_PLACE = "text|title|name|description|listing|product|item|source|document|record|data|page|seller|manufacturer|vendor"
_KNOWN = "information|info|details|context|input|content|entry|catalog"
_SHOWN = (
    "pictures?|pics?|images?|photos?|description|title|listing|details|above|below|text|specifications?|specs|chart"
)
_ABOUT = r"(?: (?:about|for|of|on|regarding)(?: (?:the|this|its|it))?)?"
_THE = r"(?:(?:the|this|any|its) )?(?:(?:product|given|provided|available|item|above) ){,2}"
_FIND = "determine|identify|infer|tell|say|find|extract|confirm|verify|establish|deduce"
_FOUND = "determined|identified|inferred|told|found|extracted|confirmed|verified|established|deduced|known|specified"
# The attribute's own name is left out: of "the brand is not specified" this is "the is not specified".
_SENTENCES = re.compile(
    rf"(?:{_THE}(?:(?:it|this|that|product's|item's|name|value|of {_THE}) ?)?"
    rf"(?:(?:is|was|are|were) )?not (?:(?:\w+ly|yet) )?(?:{_BEHIND_NOT}|clear|determinable)"
    rf"|the (?:[\w'-]+ ){{1,4}}(?:is|was|are|were) not (?:(?:\w+ly|yet) )?(?:{_SAID})"
    rf"|(?:{_THE}(?:(?:it|this|that|product's|item's|name|value|of {_THE}) ?)?|the (?:[\w'-]+ ){{1,4}})"
    rf"(?:can ?not|can't|could not|couldn't) be (?:(?:\w+ly) )?(?:{_FOUND})"
    rf"|(?:(?:i|we) )?(?:am |are |was |were )?(?:unable to|not able to|can ?not|can't|could not|couldn't) (?:{_FIND})"
    rf"(?: (?:it|this|that|the|a|its))?(?: value)?"
    rf"|(?:it is )?(?:impossible|not possible) to (?:{_FIND})(?: (?:it|this|that|the|a|its))?(?: value)?"
    rf"|(?:none|nothing) (?:(?:is|was) )?(?:{_BEHIND_NOT})"
    rf"|(?:there is )?no (?:(?:explicit|specific|clear) )?(?:{_NOUNS}){_ABOUT}"
    rf"|(?:{_NOUNS}) (?:(?:is|are) )?(?:missing|unavailable|unknown|not (?:{_BEHIND_NOT}))"
    rf"|(?:there (?:is|was) )?no (?:(?:{_NOUNS}) )?(?:(?:is|was) )?(?:{_BEHIND_NOT}){_ABOUT}"
    rf"|(?:not enough|insufficient) (?:{_NOUNS})(?: (?:is )?(?:available|given|provided))?"
    rf"(?: to (?:{_FIND})(?: (?:it|this|the|a|its))?)?"
    rf"|(?:{_THE}(?:(?:it|this|that|product's|item's|name|value|of {_THE}) ?)?)?"
    r"(?:is|was|remains) (?:unknown|unspecified|unclear)"
    r"|unknown|unspecified|unclear)"
    rf"(?: (?:in|on|by|from|for|within|with|given|based on) {_THE}(?:{_PLACE}|{_KNOWN})"
    rf"(?: (?:or|and|nor) {_THE}(?:{_PLACE}|{_KNOWN}))?(?: (?:provided|given|alone))?)?"
    r"(?: (?:yet|here))?"
    rf"|{_THE}(?:text|title|description|listing|information|input) (?:does not|doesn't|do not) (?:\w+ly )?"
    r"(?:specify|mention|state|say|provide|indicate|contain|include|give|list|disclose)"
    rf"(?: (?:it|this|the|a|an|any|its))?(?: (?:{_NOUNS}){_ABOUT})?"
    rf"|not in {_THE}(?:{_PLACE}|{_KNOWN})"
    rf"|(?:please )?(?:see|refer to|check|view)(?: (?:the|our))?(?: (?:product|item|size))? (?:{_SHOWN})"
)
# What a spreadsheet, a database or a template leaves behind.
_LEFT_BEHIND = re.compile(
    r"#(?:N/A|NA|REF|VALUE|DIV/0|NAME|NULL|NUM|CALC|SPILL|GETTING_DATA)[!?]?|\\N|-?1\.#(?:IND|QNAN)"
)
_IN_BRACKETS = frozenset({"empty", "blank", "missing", "leer", "fehlt", "vacio", "vide"})

_MAX_LENGTH = 120  # characters; no word for nothing is longer
_OUTER = " \t\r\n\"'`´‘’‚“”„«»‹›「」『』【】〈〉《》〔〕()[]{}<>.,;:!?¿¡…·・•*_~〜|/\\#=-‐‑‒–—―−─ー。、،؛؟"
_BRACKETS = "([{<【「『《〈"
_VERB = re.compile(
    r"^(?:(?:die|der|das|es|de|het) )?(?:ist|sind|wird|wurden?|is|werd) "
    r"|^(?:la|le|el|il|lo|a|o) (?=(?:n'est|non?|nao) )"
)
_BETWEEN_WORDS = re.compile(r"[\s_\-‐‑‒–—―−־]+")
_ABBREVIATION = re.compile(r"(\w{1,2})\s*[./\\]\s*(\w{1,2})(?:\s*[./\\]\s*(\w{1,2}))?")
# A slash between two letters is a part of "N/A".
_SEPARATORS = re.compile(r"[,;:|()\[\]]|\.\s|\s[-–—]\s|\s(?:or|oder|ou|o)\s|/(?!(?<=\b\w/)\w\b)", re.IGNORECASE)
_SAME_LETTERS = str.maketrans({"‘": "'", "’": "'", "´": "'", "ı": "i"})
_LABELS = (":", "=", "：", "|", "\t")
_COPULAS = frozenset({"is", "are", "was", "ist", "est", "es", "è"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NO_NAMES = _words(
    "kein keine keiner keines aucun aucune ninguno ninguna nenhum nenhuma nessuno nessuna geen ingen inget "
    "zadny zadna zadne niciunul niciuna"
)
"""Folded words that only ever stand before what is not there: "Keine Batterien"."""
_BEFORE_NAMES = _words(
    "the by from for to in and new original genuine official von für und der die das neu de du par pour et le la "
    "por para y el del di da per e il van voor en av från för och til fra og"
)
_NO_NAME_BEHIND = _words(
    "of but like else more less and or in on at to for from is are was beats compares matters required needed included "
    "supplied necessary applicable available specified stated given provided known listed found mentioned"
)
"""Words behind which the capital of a title tells nothing: "None Required", "Nothing Beats It"."""
_PROPERTIES = _words(
    "age artist author brand care category color colour condition country date designer dimension finish flavor "
    "flavour gender genre gtin height length maker make manufacturer material model mpn origin pattern period "
    "photographer publisher quantity scent season shape size source sku style theme type upc warranty weight width year"
)
"""Names of attributes as titles and lists without colons have them: "Pattern None Color Blue"."""
_LABEL_WORDS = 3
_ENDS_OF_PARTS = (".", "!", "?", ";", ",")
_JOINTS = frozenset(" (_-/")
_WINDOW = 80  # characters on each side of a word that tell what it is
_WORD_BEFORE = re.compile(r"(\w+) +\Z")
_WORD_BEHIND = re.compile(r"(?:['’]s|[®™©])? +\(?(\w+)")


class Reading(Enum):
    """What an item says."""

    VALUE = auto()
    NOTHING = auto()
    UNCLEAR = auto()
    """A name or nothing: the text has it, but does not spell it as a name. As a value it is nothing."""


def read(item: str, attribute: str, fields: Mapping[str, str] | None = None) -> Reading:
    """Whether an item that is no member of an enum is a value.

    Args:
        item: what was answered.
        attribute: the attribute's name.
        fields: the record's texts where they are known, and a name may be the answer.
    """
    item = item.strip()
    if len(item) > _MAX_LENGTH or not _says_nothing(item, attribute):
        return Reading.VALUE
    name = item.rstrip(".")
    if fields and name.isalpha() and name[0].isupper():
        return Reading.NOTHING if fold(name) in _NO_NAMES else _as_name(name, _fold_name(attribute), fields.values())
    return Reading.NOTHING


def fold(text: str) -> str:
    """`text` without what words for nothing are written with or without: case, accents, brackets, quotes, dots."""
    text = html.unescape(text).casefold()
    if not text.isascii():
        letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold()).translate(_SAME_LETTERS)
        text = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf"))
        text = unicodedata.normalize("NFC", text)
    text = text.strip(_OUTER)
    if found := _ABBREVIATION.fullmatch(text):
        return "/".join(filter(None, found.groups()))
    return _BETWEEN_WORDS.sub(" ", text.replace(".", "")).strip()


_fold_name = lru_cache(maxsize=1024)(fold)


@lru_cache(maxsize=16384)
def _says_nothing(item: str, attribute: str) -> bool:
    """Whether the whole item is a word for nothing; of the attribute of this name, "unknown brand" is one, too."""
    if not item:
        return False
    text, name = fold(item), _fold_name(attribute)
    if not text or _is_phrase(text) or _LEFT_BEHIND.fullmatch(item):
        return True
    if text == name or text in _IN_BRACKETS:
        return item[0] in _BRACKETS
    if name and name in text:
        rest = fold(re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", text))
        if rest and _is_phrase(rest):
            return True
    # "N/A (not available)", and "unknown/not specified".
    parts = list(filter(None, map(fold, _SEPARATORS.split(item))))
    return len(parts) > 1 and all(map(_is_phrase, parts))


def _is_phrase(text: str) -> bool:
    if text in _FOLDED or _SENTENCES.fullmatch(text):
        return True
    rests = (text.replace(place, " ", 1) for place in ("", *_FOLDED_PLACES) if place in text)
    return any(_VERB.sub("", " ".join(rest.split())) in _FOLDED for rest in rests)


class _Spelling(IntEnum):
    """What a word is at one place of a text, the strongest first."""

    FIRST = auto()
    """A name with which a text begins."""
    OWN_LABEL = auto()
    """Nothing: it stands behind or before the attribute's name."""
    NAME = auto()
    ALONE = auto()
    """Nothing: behind another label, or no word of a sentence."""
    IN_SENTENCE = auto()
    """A name, by its capital in a sentence: "ships to NA and EU"."""
    UNCLEAR = auto()


_READINGS = {
    _Spelling.FIRST: Reading.VALUE,
    _Spelling.OWN_LABEL: Reading.NOTHING,
    _Spelling.NAME: Reading.VALUE,
    _Spelling.ALONE: Reading.NOTHING,
    _Spelling.IN_SENTENCE: Reading.VALUE,
    _Spelling.UNCLEAR: Reading.UNCLEAR,
}


def _as_name(name: str, label: str, texts: Iterable[str]) -> Reading:
    """One word for nothing, with a capital, that is a name where a text spells it as one."""
    anyhow = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    places = [(text, *place.span()) for text in texts for place in anyhow.finditer(text)]
    surroundings = {
        (text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW], start <= _WINDOW)
        for text, start, end in places
        if text[start:end] == name
    }
    if surroundings:
        return _READINGS[min(_spelling(*surrounding, label) for surrounding in surroundings)]
    return Reading.UNCLEAR if places else Reading.NOTHING


def _spelling(before: str, behind: str, has_begun: bool, label: str) -> _Spelling:
    """What a word is between these texts; `has_begun`: the text begins with `before`."""
    is_first = has_begun and not before.strip(_OUTER)
    before, behind = before.rpartition("\n")[2], behind.partition("\n")[0]
    is_labelled = before.rstrip(" \"'“”(").endswith(_LABELS)
    if label and _is_its_label(before, behind, label, is_labelled):
        return _Spelling.OWN_LABEL
    left_word, right_word = _first_group(_WORD_BEFORE.search(before)), _first_group(_WORD_BEHIND.match(behind))
    left, right = left_word.casefold(), right_word.casefold()
    if is_labelled or left in _COPULAS:
        return _Spelling.ALONE
    if right == "of" or _is_property(right) or _is_property(left):
        return _Spelling.UNCLEAR
    if right and not right_word[0].islower():
        if right in _NO_NAME_BEHIND:
            return _Spelling.UNCLEAR
        if is_first:
            return _Spelling.FIRST
        # In a title every word has a capital: of "Strap None Buckle Gold" it tells nothing.
        is_told = not left or left in _BEFORE_NAMES or left_word.islower()
        return _Spelling.NAME if is_told else _Spelling.UNCLEAR
    if left in _BEFORE_NAMES:
        return _Spelling.IN_SENTENCE
    return _Spelling.UNCLEAR if left or right else _Spelling.ALONE


def _is_its_label(before: str, behind: str, label: str, is_labelled: bool) -> bool:
    """Whether the attribute's name stands before or behind: "Brand None", "Brand name: None", "Unknown brand"."""
    folded = fold(before)
    if is_labelled and f" {label} " in f" {' '.join(folded.split()[-_LABEL_WORDS:])} ":
        return True
    if f" {folded}".endswith(f" {label}") and not before.rstrip().endswith(_ENDS_OF_PARTS):
        return True
    return behind[:1] in _JOINTS and f"{fold(behind)} ".startswith(f"{label} ")


def _is_property(word: str) -> bool:
    return word in _PROPERTIES or word.removesuffix("s") in _PROPERTIES


def _first_group(found: re.Match[str] | None) -> str:
    return found[1] if found else ""


_WITHOUT_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


def _spellings(phrases: Iterable[str]) -> Iterator[str]:
    for phrase in phrases:
        yield fold(phrase)
        yield fold(phrase.translate(_WITHOUT_UMLAUTS))


_FOLDED = frozenset(_spellings(phrase for phrases in _PHRASES.values() for phrase in phrases.split(", ")))
# The longest first.
_FOLDED_PLACES = tuple(
    sorted(set(_spellings(place for places in _PLACES.values() for place in places.split(", "))), key=len, reverse=True)
)
