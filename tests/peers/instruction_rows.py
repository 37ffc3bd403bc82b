# ruff: noqa: E501 (a table: one row a line)
"""Rows of our own for IFEval's 25 kinds: `(id, arguments, text, IFEval's verdict, why ours differs)`.

IFEval's verdict is what its published checks (Zhou et al. 2023, arXiv 2311.07911) say of the text.
An empty reason means that ours is the same; otherwise ours is the opposite, by convention.
"""

WORDS = "a keyword is a whole word, not a piece of another"
ONCE = "exactly one of the three answers"
CONTENT = "an empty place is not filled in"
MARK = "a piece without a mark at its end is not a sentence"
HYPHEN = "a word with a hyphen or an apostrophe is one word"
DISTINCT = "the same section twice is one section"
ROMAN = "Roman numerals count"
LINE = "a postscript begins its line"
DOUBLE = "**bold** is one highlight, not two"
RULE = "a line of dashes is not a bullet"
COMMAS = "commas of other scripts are commas"
NO_LANGUAGE = "a text without prose is in no language"
JSON = "NaN is not JSON"
SPACES = "white space inside the prompt does not count"

_AT_LEAST, _LESS = {"relation": "at least"}, {"relation": "less than"}
SENTENCES, NUM_WORDS = "length_constraints:number_sentences", "length_constraints:number_words"

ROWS = [
    ("keywords:existence", {"keywords": ["river", "stone"]}, "A River over stone.", True, ""),
    ("keywords:existence", {"keywords": ["river", "stone"]}, "A river.", False, ""),
    ("keywords:existence", {"keywords": ["stone"]}, "Milestones are set.", True, WORDS),
    ("keywords:frequency", {"keyword": "leaf", "frequency": 3, **_AT_LEAST}, "leaf, Leaf, LEAF", True, ""),
    ("keywords:frequency", {"keyword": "leaf", "frequency": 4, **_LESS}, "*leaf\n*Leaf\n*LEAF", True, ""),
    ("keywords:frequency", {"keyword": "leaf", "frequency": 2, **_AT_LEAST}, "a leaf", False, ""),
    ("keywords:frequency", {"keyword": "leaf", "frequency": 1, **_AT_LEAST}, "leaflet", True, WORDS),
    ("keywords:forbidden_words", {"forbidden_words": ["rain"]}, "The train is late.", True, ""),
    ("keywords:forbidden_words", {"forbidden_words": ["rain"]}, "RAIN again", False, ""),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"}, "Quick quiz", True, ""),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "less than"}, "Quick quiz", False, ""),
    ("language:response_language", {"language": "en"}, "The answer is written in English.", True, ""),
    ("language:response_language", {"language": "es"}, "Hoy desayunamos pan con tomate en casa.", True, ""),
    ("language:response_language", {"language": "es"}, "Today we had bread and tomatoes at home.", False, ""),
    ("language:response_language", {"language": "de"}, "12345", True, NO_LANGUAGE),
    (SENTENCES, {"num_sentences": 4, **_LESS}, "Aa, b. Cc, d! Ee / f. G {h} i?", False, ""),
    (SENTENCES, {"num_sentences": 4, **_AT_LEAST}, "Aa. Bb, c! Dd | e. F & g?", True, ""),
    (SENTENCES, {"num_sentences": 5, **_AT_LEAST}, "Aa. Bb, c! Dd | e. F & g?", False, ""),
    (SENTENCES, {"num_sentences": 2, **_AT_LEAST}, "One line.\nanother without an end", True, MARK),
    (SENTENCES, {"num_sentences": 3, **_AT_LEAST}, "first line\nsecond line\nthird line", False, ""),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 3}, "one\n***\ntwo\n***\nthree", True, ""),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 3}, "***\none\n***\ntwo\n***\nthree", True, ""),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo\n***\n***", False, ""),
    (NUM_WORDS, {"num_words": 4, **_AT_LEAST}, "m0del w1th f0ur w0rds", True, ""),
    (NUM_WORDS, {"num_words": 4, **_LESS}, "m0del w1th f0ur w0rds", False, ""),
    (NUM_WORDS, {"num_words": 3, **_AT_LEAST}, "well-known fact", True, HYPHEN),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "I"}, "One.\n\nI am two.\n\nThree.", True, ""),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "truly"}, "One.\n\n\"Truly?\" two.", True, ""),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "truly"}, "One.\n\nTru!ly two.", False, ""),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name], [street]", True, ""),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}, "[name], [street]", False, ""),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "Dear [],", True, CONTENT),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Well.\n\nP.S. One more thing.", True, ""),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Well.\nP. S. with a space.", True, ""),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Well.\np.p.s small letters", True, ""),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Nothing of the kind.", False, ""),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "In the line. P.S. so.", True, LINE),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}, "Three:\n * one\n *two\n * three", True, ""),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "Two, inline * and (*):\n- one\n-two", True, ""),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n. two", False, ""),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "a\n***\nb\n* one", True, ""),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "---\n- one", True, RULE),
    ("detectable_format:constrained_response", {}, "\n My answer is maybe.\n", True, ""),
    ("detectable_format:constrained_response", {}, "Perhaps.", False, ""),
    ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no.", True, ONCE),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and *two words*", True, ""),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*open\n*one*\n*open", False, ""),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "**only one**", True, DOUBLE),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 2}, "SECTION 1\na\nSECTION 2\nb", True, ""),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 3}, "Section 1\na\nSection 2\nb", False, ""),
    ("detectable_format:multiple_sections", {"section_spliter": "Day", "num_sections": 2}, "Day 1\na\nDay 1\nb", True, DISTINCT),
    ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 2}, "Part I\na\nPart II\nb", False, ROMAN),
    ("detectable_format:json_format", {}, '```json\n{"a": [1, null]}\n```', True, ""),
    ("detectable_format:json_format", {}, '{"a": 1', False, ""),
    ("detectable_format:json_format", {}, '{"a": NaN}', True, JSON),
    ("detectable_format:title", {}, "<<A river>>\nIt flows.", True, ""),
    ("detectable_format:title", {}, "<A river>", False, ""),
    ("detectable_format:title", {}, "<<>>", False, ""),
    ("combination:two_responses", {}, "one\n******\ntwo", True, ""),
    ("combination:two_responses", {}, "one\n******\none", False, ""),
    ("combination:two_responses", {}, "one\n******\ntwo\n******\nthree", False, ""),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Name a river."}, "Name a river.\nThe Rhine.", True, ""),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Name a river."}, "The Rhine.", False, ""),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Name a river."}, "Name  a\nriver. The Rhine.", False, SPACES),
    ("startend:end_checker", {"end_phrase": "that is all"}, 'Well, "That is all"', True, ""),
    ("startend:end_checker", {"end_phrase": "that is all"}, "that is all, folks", False, ""),
    ("startend:quotation", {}, '"Well said."', True, ""),
    ("startend:quotation", {}, '"Well', False, ""),
    ("startend:quotation", {}, '""', True, CONTENT),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "THE river IS wide", True, ""),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "THE river IS wide", False, ""),
    ("change_case:english_capital", {}, "THE RIVER IS WIDE AND THE WATER IS COLD.", True, ""),
    ("change_case:english_capital", {}, "The river is wide and the water is cold.", False, ""),
    ("change_case:english_lowercase", {}, "the river is wide and the water is cold.", True, ""),
    ("change_case:english_lowercase", {}, "the River is wide and the water is cold.", False, ""),
    ("punctuation:no_comma", {}, "one and two", True, ""),
    ("punctuation:no_comma", {}, "one, two", False, ""),
    ("punctuation:no_comma", {}, "一，二", True, COMMAS),
]  # fmt: skip
