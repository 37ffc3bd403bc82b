"""25 instructions by IFEval's ids: a text that follows each, and texts that do not."""

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases
from groupwise.verifiers.text.instruction_checks import CHECKS, sentences

LONG = "The weather is nice today and we are going for a walk in the park"

# (id, arguments, texts that follow it, texts that do not)
ROWS = [
    ("keywords:existence", {"keywords": ["cat", "ice cream"]},
     ["A Cat eats ice cream."], ["A cat.", "cats and ice cream"]),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "at least"},
     ["cat, Cat", "cat cat cat"], ["cat", "cat catalogue"]),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "less than"},
     ["cat", "dog"], ["cat cat"]),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "dog"]},
     ["a bird", "concatenate"], ["a cat", "DOG!"]),
    ("keywords:letter_frequency", {"letter": "z", "let_frequency": 2, "let_relation": "at least"},
     ["Zebra zoo"], ["zebra"]),
    ("language:response_language", {"language": "de"},
     ["Das Wetter ist heute sehr schön und wir gehen spazieren."], [LONG]),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"},
     ["One. Two!", "Dr. Who is here. He costs 3.5 dollars."], ["One", "It is 3.5 m.", "..."]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2},
     ["a\n***\nb", "***\na\n***\nb"], ["a", "a\n***\n\n***\nb", "a\n***\nb\n***\nc"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"},
     ["two words", "it's well-known"], ["one two three"]),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
     ["First.\n\nThen second.", "a\n\n\n\"Then,\" b"],
     ["First.\n\nSecond.", "Then", "a\n\nb\n\nThen"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 2},
     ["[name] at [address]"], ["[name]", "[] []"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."},
     ["Bye.\nP.S. I forgot.", "Bye\np.s.: more"], ["Bye.", "Bye. PSA follows"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"},
     ["Bye.\nP.P.S I forgot."], ["Bye.\nP.S. I forgot."]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2},
     ["* a\n* b", "- a\n  - b"], ["* a", "* a\n* b\n* c", "** a **\n* b", "---\n* a"]),
    ("detectable_format:constrained_response", {},
     ["My answer is yes.", "Well. My answer is maybe."],
     ["yes", "My answer is yes. My answer is no."]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2},
     ["*a* and *b*", "**a** and *b*"], ["*a*", "** ** and *a*", "* a\n* b"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     ["Section 1\nx\nSection 2\ny", "## Section I\nx\n## SECTION II"],
     ["Section 1\nx", "Section a"]),
    ("detectable_format:json_format", {}, ['{"a": 1}', '```json\n{"a": 1}\n```'], ["{a}", "so {}"]),
    ("detectable_format:title", {}, ["<<A title>>\ntext"], ["<A title>", "<<>>", "<< >>"]),
    ("combination:two_responses", {}, ["a\n******\nb"], ["a", "a******a", "a******b******c"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Write a poem."},
     ["Write a  poem.\nRoses"], ["Roses. Write a poem."]),
    ("startend:end_checker", {"end_phrase": "The end."},
     ["Once. The end.", 'x the end."\n'], ["The end. Or not"]),
    ("startend:quotation", {}, ['"quoted"', ' "a"\n'], ['"half', "none", '"', '""']),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     ["NASA and ESA"], ["NASA and Esa"]),
    ("change_case:english_capital", {}, [LONG.upper()], [LONG]),
    ("change_case:english_lowercase", {}, [LONG.lower()], [LONG]),
    ("punctuation:no_comma", {}, ["no such thing"], ["well, no", "十，百"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), ROWS)
def test_each_instruction(name, arguments, good, bad):
    for text in good:
        assert CHECKS[name](text, **arguments), text
    for text in bad:
        assert not CHECKS[name](text, **arguments), text


def test_there_are_ifevals_25_and_each_is_tested():
    assert len(CHECKS) == 25
    assert {name for name, *_ in ROWS} == set(CHECKS)


def judged(text, ids, kwargs, **arguments):
    columns = {"instruction_id_list": ids, "kwargs": kwargs}
    case = Case(Prompt("p", text="q", columns=columns), text)
    return score_cases(load_verifier("instructions", **arguments), [case])[0]


IDS = ["punctuation:no_comma", "length_constraints:number_words"]
KWARGS = [{"num_words": None}, {"num_words": 3, "relation": "at least", "keyword": None}]


def test_the_share_and_all():
    assert judged("one two three", IDS, KWARGS).value == 1.0
    half = judged("one, two", IDS[:1] + IDS, [{}, *KWARGS])
    assert (half.value, half.outcome) == (0.0, "incorrect")
    half = judged("one two", IDS, KWARGS)
    assert (half.value, half.outcome) == (0.5, "partial")
    assert half.reason == "not followed: length_constraints:number_words"
    assert judged("one two", IDS, KWARGS, count="all").value == 0.0
    assert judged("", IDS, KWARGS).outcome == "no_answer"
    assert judged("<think>a, b</think>one two three", IDS, KWARGS).value == 1.0


def test_loose_reading():
    ids, kwargs = ["startend:end_checker"], [{"end_phrase": "The end."}]
    text = "Sure!\nThe end.\nHope it helps"
    assert judged(text, ids, kwargs).value == 0.0
    assert judged(text, ids, kwargs, loose=True).value == 1.0


def test_the_same_for_every_prompt():
    verifier = load_verifier("instructions", ids=["punctuation:no_comma"])
    assert verifier.required_columns == frozenset()
    assert score_cases(verifier, [Case(Prompt("p", text="q"), "a b")])[0].value == 1.0


@pytest.mark.parametrize(
    ("ids", "kwargs", "message"),
    [
        (["punctuation:no_coma"], [{}], "did you mean 'punctuation:no_comma'"),
        (["punctuation:no_comma"], [], "1 instruction ids and 0 tables"),
        (["keywords:existence"], [{}], "takes keywords; got none"),
        (["punctuation:no_comma"], [{"x": 1}], "takes no arguments; got x"),
        (
            ["length_constraints:number_words"],
            [{"num_words": 3, "relation": "above"}],
            "a relation",
        ),
    ],
)
def test_bad_instructions(ids, kwargs, message):
    assert message in judged("text", ids, kwargs).reason
    prompt = Prompt("p", text="q", columns={"instruction_id_list": ids, "kwargs": kwargs})
    assert message in load_verifier("instructions").check_answer(prompt)
    if kwargs:
        with pytest.raises(RecipeError):
            load_verifier("instructions", ids=ids, kwargs=kwargs)


def test_sentences():
    assert sentences("Hi there! How are you? (Fine.) Mr. Smith paid 3.50 dollars.") == [
        "Hi there", "How are you", "(Fine", "Mr Smith paid 3.50 dollars",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("one\ntwo\nthree", 0),
        ("- milk\n- bread\n- eggs", 0),
        ("A heading\n\nThe first sentence. The second one\nover two lines.", 2),
        ("Roses are red\nViolets are blue\nSugar is sweet\nAnd so are you.", 1),
        ("It ends here. this does not", 1),
        ("Wait... what?! No.", 3),
        ("“Go.” He went.", 2),
        ("यह एक वाक्य है। यह दूसरा है।", 2),
        ("کیا حال ہے؟ ٹھیک ہوں۔", 2),
        ("今日は。明日！", 2),
        ("... ! ?", 0),
    ],
)
def test_only_a_mark_ends_a_sentence(text, number):
    assert len(sentences(text)) == number


LOWERCASE = "change_case:english_lowercase"
# Urdu, Hindi, Russian, Greek, Japanese, Tamil, Marathi and Bengali in Latin letters.
ROMANISED = [
    "main aaj bazaar ja raha hoon aur kuch sabziyan kharidunga",
    "mujhe lagta hai ke yeh bohat acha khayal hai aur hum sab ko is par amal karna chahiye",
    "aap kaise hain, main theek hoon, shukriya",
    "pakistan aik khubsurat mulk hai. yahan ke log bohat mehman nawaz hain.",
    "please is letter ko parh lein aur mujhe jawab dein",
    "school mein teacher ne humein english aur science parhayi",
    "yeh mobile phone bohat acha hai is ki battery lambi chalti hai",
    "mera naam rahul hai aur main dilli mein rehta hoon",
    "eto ochen horoshaya ideya i ya soglasen",
    "kalimera ti kaneis simera to proi",
    "watashi wa kyou ichiba ni ikimasu",
    "naan indru kadaikku pogiren",
    "mi aaj bajarat jat aahe",
    "ami aaj bajare jacchi ar kichu sobji kinbo",
]
ENGLISH = [
    "the weather is nice today and we are going for a walk in the park",
    "dear sir or madam, i am writing to complain about the noise",
    "a haiku about rain\nsoft rain on the roof\ndreams drift into sleep",
    "mumbai, delhi and kolkata are large cities in india",
    "- milk\n- bread and butter",
    "photosynthesis is the process by which green plants convert sunlight into energy",
    "bonjour is the french word for hello",
]


@pytest.mark.parametrize("text", ROMANISED)
def test_another_language_in_latin_letters_is_not_english(text):
    assert not CHECKS[LOWERCASE](text)
    assert not CHECKS["change_case:english_capital"](text.upper())
    assert not CHECKS["language:response_language"](text, language="en")
    assert not CHECKS["language:response_language"](text, language="ur")


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_english(text):
    assert CHECKS[LOWERCASE](text)
    assert CHECKS["change_case:english_capital"](text.upper())
    assert CHECKS["language:response_language"](text, language="en")


@pytest.mark.parametrize(
    ("text", "language", "other"),
    [
        ("नेपाल एक सुन्दर देश हो र यहाँ धेरै पहाडहरू छन्।", "ne", "hi"),
        ("म आज बजार जाँदैछु र केही तरकारी किन्नेछु।", "ne", "hi"),
        ("आज मौसम राम्रो छ।", "ne", "hi"),
        ("म नेपाली भाषा बोल्छु। मेरो देश नेपाल हो।", "ne", "hi"),
        ("हामी सबैले वातावरण जोगाउनुपर्छ। रूख रोप्नु राम्रो बानी हो।", "ne", "hi"),
        ("भारत एक बड़ा देश है और यहाँ कई भाषाएँ बोली जाती हैं।", "hi", "ne"),
        ("हिमालय संसार का सबसे ऊँचा पर्वत है।", "hi", "ne"),
        ("मी आज बाजारात जात आहे आणि भाज्या विकत घेणार आहे.", "mr", "hi"),
        ("今天我去市场买菜。", "zh", "ja"),
        ("今日は市場に行きます。", "ja", "zh"),
        ("днес отивам на пазара да купя зеленчуци.", "bg", "ru"),
        ("Elimu ni muhimu sana kwa maendeleo ya jamii yetu.", "sw", "en"),
        ("danas idem na tržnicu kupiti povrće.", "hr", "sl"),
        ("میں آج بازار جا رہا ہوں اور کچھ سبزیاں خریدوں گا۔", "ur", "fa"),
        ("ನಾನು ಇಂದು ಮಾರುಕಟ್ಟೆಗೆ ಹೋಗುತ್ತಿದ್ದೇನೆ.", "kn", "te"),
    ],
)
def test_a_language_is_told_from_its_neighbour(text, language, other):
    assert CHECKS["language:response_language"](text, language=language)
    assert not CHECKS["language:response_language"](text, language=other)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("length_constraints:number_words", {"num_words": "three", "relation": "at least"}),
        ("length_constraints:number_words", {"num_words": 2.5, "relation": "at least"}),
        ("keywords:existence", {"keywords": "cat"}),
        ("keywords:existence", {"keywords": [1]}),
        ("startend:end_checker", {"end_phrase": ["the end"]}),
    ],
)
def test_an_argument_of_another_kind_is_a_bad_row(name, arguments):
    score = judged("text", [name], [arguments])
    assert (score.value, score.outcome) == (None, "bad_answer")
    assert "expected" in score.reason


def test_a_whole_float_is_a_number_of_words():
    kwargs = [{"num_words": 2.0, "relation": "at least"}]
    assert judged("a b", ["length_constraints:number_words"], kwargs).value == 1.0


# Attempts to follow an instruction without doing it, and honest texts in an unusual writing.
ATTEMPTS = [
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hello\nP.S. bye", True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hello\nP.S.", False),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        "Hello\nPS is a console",
        False,
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hello\npsalms are", False),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Hello\nP.S. bye", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hello\r\nP.S. bye\r\n", True),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hello\n**P.S.** bye", True),
    ("detectable_format:json_format", {}, "```json\r\n{}\r\n```", True),
    ("detectable_format:json_format", {}, "```\n[1]\n```", True),
    ("detectable_format:json_format", {}, "```json\n{}\n``` and", False),
    ("detectable_format:json_format", {}, "``````", False),
    ("detectable_format:json_format", {}, "NaN", False),
    ("detectable_format:title", {}, "<<a>>", True),
    ("detectable_format:title", {}, "<<a\nb>>", False),
    ("detectable_format:title", {}, "<<>> hello <<>>", False),
    ("detectable_format:title", {}, "<<  >>", False),
    ("detectable_format:title", {}, "a >> b << c", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\r\n* b\r\n", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* \n", False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "- a\n- b", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "- \n\n", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\r\n***\r\nb", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", True),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "b"},
        "a\r\n\r\nb c",
        True,
    ),
    ("startend:quotation", {}, '""', False),
    ("startend:quotation", {}, '" "', False),
    ("startend:quotation", {}, '"a"', True),
    ("startend:quotation", {}, "“a”", True),
    ("combination:two_responses", {}, "a******a", False),
    ("combination:two_responses", {}, "a******b", True),
    ("combination:two_responses", {}, "a****** ", False),
    ("change_case:english_capital", {}, "THIS IS A SENTENCE IN ENGLISH.", True),
    ("change_case:english_capital", {}, "DAS IST EIN DEUTSCHER SATZ.", False),
    ("change_case:english_capital", {}, "`A`", False),
    ("change_case:english_lowercase", {}, "$x$", False),
    ("startend:end_checker", {"end_phrase": "Bye."}, "so\nBye.\r\n", True),
    ("startend:end_checker", {"end_phrase": "bye"}, "Bye", True),
    ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no.", False),
    ("detectable_format:constrained_response", {}, "My answer is yes.", True),
    ("keywords:existence", {"keywords": ["cat"]}, "category", False),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "cats", True),
    ("keywords:existence", {"keywords": ["c++"]}, "use c++.", True),
    ("keywords:existence", {"keywords": ["ice cream"]}, "ice\ncream", True),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 2, "let_relation": "at least"},
        "##",
        True,
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[ ]", False),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[name]", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "** **", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "*a b*", True),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "* a\n* b\n* c",
        False,
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        True,
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\nSection 1",
        False,
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "**SECTION I**\na\n\n**SECTION II**\nb",
        True,
    ),
    ("language:response_language", {"language": "de"}, "```\ncode only\n```", False),
    ("language:response_language", {"language": "en"}, "$x+1$", False),
    ("language:response_language", {"language": "en"}, "https://a.b/c", False),
    ("language:response_language", {"language": "en"}, "123", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi"}, "Say hi\nhi", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi"}, "Say hit", False),
    ("punctuation:no_comma", {}, "a，b", False),
    ("punctuation:no_comma", {}, "a b", True),
    ("punctuation:no_comma", {}, "a、b", False),
    ("punctuation:no_comma", {}, "a،b", False),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "a-b-c", False),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "a. b.",
        True,
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "a b 3.5 c.",
        True,
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "你好。再见。",
        True,
    ),
]


@pytest.mark.parametrize(("name", "arguments", "text", "followed"), ATTEMPTS)
def test_attempts(name, arguments, text, followed):
    assert CHECKS[name](text, **arguments) == followed
