"""The expressions of rule files: what is allowed computes as Python does, and all else is refused before it runs."""

import ast

import pytest

from compliance.committee import expressions
from compliance.committee.expressions import RefusedError, translate_code, translate_test

VALUE = {"value": 8, "metadata": {"samples_count": 1024, "name": "Adam"}}
STATE = {"size": 4, "on": True}
ALLOWED = [
    ("v['value'] == 8 and not s['on'] is None", True),
    ("1 < s['size'] <= 4 or False", True),
    ("s['size'] + 1 - 2 * 3 / 4", 3.5),
    ("(s['size'] // 3, 7 % 4) == (1, 3)", True),
    ("2 ** 0.5 * -1 < 0", True),
    ("(1 == 1) | (1 == 2)", True),
    ("'samples_count' in v['metadata']", True),
    ("v['value'] not in [1, 2] and 'a' in {'a', 'b'}", True),
    ("v['metadata']['samples_count'] if s['on'] else 0", 1024),
    ("v['metadata'].get('none', 5) + s.get('size')", 9),
    ("s.get('none') is None", True),
    ("v['metadata']['name'].lower()", "adam"),
    ("abs(-1) + max(1, 2) + min([3, 4]) + len('ab') + int(1.5) + round(2.4)", 11),
    ("sorted([3, 1]) == [1, 3] and bool(1) and float('2') == 2", True),
    ("math.ceil(1.2) + math.floor(1.8) + math.log2(8)", 6),
    ("math.isclose(1, 1.0000000001) and is_integer(3.0)", True),
    ("isinstance(v['value'], int) and not isinstance(v['value'], list)", True),
    ("ll.timestamp", 12.0),
]
CODE = [
    ("s.update({'a': 1, 'b': []})", {"a": 1, "b": []}),
    ("s['a'] = v['value']; s['size'] += 1", {"a": 8, "size": 5}),
    ("s['list'] = []\ns['list'] += [v['value']]", {"list": [8]}),
    ("if s['on']:\n    s['a'] = 1\nelse:\n    s['a'] = 2", {"a": 1}),
    ("# only a comment, and one statement\ns['on'] = False", {"on": False}),
]
REFUSED = [
    ("__import__('os')", "Call is not allowed"),
    ("open('/etc/passwd')", "Call is not allowed"),
    ("enqueue_config.__globals__", "Attribute is not allowed"),
    ("v['metadata'].__class__", "Attribute is not allowed"),
    ("ll.value", "Attribute is not allowed"),
    ("math.__loader__", "Attribute is not allowed"),
    ("v['value'].format(s)", "Call is not allowed"),
    ("'{0.__class__}'.format(s)", "Call is not allowed"),
    ("'{}'.format(s['a'], s['b'])", "Call is not allowed"),
    ("len(max)", "Name is not allowed: max"),
    ("s", "Name is not allowed: s"),
    ("isinstance(v['value'], object)", "Call is not allowed"),
    ("sorted([1], key=abs)", "Call is not allowed"),
    ("max(*v['value'])", "Starred is not allowed"),
    ("[x for x in v]", "ListComp is not allowed"),
    ("(lambda: 1)()", "Call is not allowed"),
    ("(x := 1)", "NamedExpr is not allowed"),
    ("f'{v}'", "JoinedStr is not allowed"),
    ("v['value'][1:]", "Subscript is not allowed"),
    ("s[v['value']]", "Subscript is not allowed"),
    ("1 << 2", "BinOp is not allowed"),
    ("~1", "UnaryOp is not allowed"),
    ("10 ** v['value']", "a power with an exponent"),
    ("2 ** 99", "a power with an exponent"),
    (str(1 << 65), "Constant is not allowed"),
    ("b'x'", "Constant is not allowed"),
    ("1j", "Constant is not allowed"),
    ("v['value'] = 1", "no Python expression"),
    ("'a' * ", "no Python expression"),
    ("", "no Python expression"),
    ("not " * 100 + "True", "too deep"),
    ("1 + " * 20_000 + "1", "characters"),
    ("[" + "1," * 10_000 + "]", "too long"),
]
REFUSED_CODE = [
    ("import os", "Import is not allowed"),
    ("x = 1", "Assign is not allowed"),
    ("s = {}", "Assign is not allowed"),
    ("v['value'] = 1", "Assign is not allowed"),
    ("s[v['value']] = 1", "Assign is not allowed"),
    ("s['a'] = [[]]", "List is not allowed"),
    ("s['a'] **= 9", "AugAssign is not allowed"),
    ("s['a'] = s['b'] = []", "Assign is not allowed"),
    ("s.update(v)", "Expr is not allowed"),
    ("s.update({**v})", "Expr is not allowed"),
    ("s.clear()", "Expr is not allowed"),
    ("for x in [1]: pass", "For is not allowed"),
    ("while True: pass", "While is not allowed"),
    ("def f(): pass", "FunctionDef is not allowed"),
    ("del s['a']", "Delete is not allowed"),
]


def run(function, state=None, value=VALUE, enqueue=None):
    return function(dict(STATE) if state is None else state, value, 12.0, enqueue or pytest.fail)


@pytest.mark.parametrize(("text", "value"), ALLOWED)
def test_an_allowed_form_has_the_value_that_python_gives(text, value):
    assert run(translate_test(text)) == value


@pytest.mark.parametrize(("text", "changed"), CODE)
def test_code_changes_the_state_and_nothing_else(text, changed):
    state = dict(STATE)
    run(translate_code(text), state)
    assert state == STATE | changed


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_any_other_form_is_refused_with_the_reason(text, reason):
    with pytest.raises(RefusedError, match=reason):
        translate_test(text)


@pytest.mark.parametrize(("text", "reason"), REFUSED_CODE)
def test_any_other_statement_is_refused_with_the_reason(text, reason):
    with pytest.raises(RefusedError, match=reason):
        translate_code(text)


def test_what_is_built_has_no_attribute_no_import_and_no_builtins(monkeypatch):
    built = []
    real = expressions._compile
    monkeypatch.setattr(expressions, "_compile", lambda node: (built.append(node), real(node))[1])
    functions = [translate_test(text) for text, _ in ALLOWED] + [translate_code(text) for text, _ in CODE]
    assert len(built) == len(functions)
    forms = {type(node) for tree in built for node in ast.walk(tree)}
    assert not forms & {ast.Attribute, ast.Import, ast.Starred, ast.ListComp, ast.NamedExpr, ast.keyword}
    names = {node.id for tree in built for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names <= {*expressions.GLOBALS, *expressions.ARGUMENTS} and "__builtins__" not in names
    assert functions[0].__globals__["__builtins__"] == {}


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ("v['value'] + 1", 1 << 65, TypeError),
        ("v['value'] * v['value']", 1 << 40, TypeError),
        ("v['value'] * 3", "abc", TypeError),
        ("v['value'] + v['value']", "abc", TypeError),
        ("v['value'] % 3", "%1000000d", TypeError),
        ("v['value'] + v['value']", [1] * 6_000, TypeError),
        ("v['value'] + v['value']", [[1]], TypeError),
        ("round(1.5, v['value'])", 10**6, ValueError),
    ],
)
def test_neither_numbers_nor_lists_nor_texts_grow_beyond_bounds(text, value, error):
    with pytest.raises(error):
        run(translate_test(text), value={"value": value, "metadata": {}})


@pytest.mark.parametrize("value", ["../x", "a/b", "", "a.b", "a" * 101, None, {}, "{}"])
def test_only_words_fill_the_name_of_a_file(value):
    function = translate_code("enqueue_config('r/{}.yaml'.format(v['value']))")
    with pytest.raises(ValueError, match="not a word"):
        run(function, value={"value": value, "metadata": {}})


def test_a_word_or_number_fills_the_name_of_a_file():
    names = []
    function = translate_code("enqueue_config('r/{}_{}.yaml'.format(v['value'], s['size']))")
    run(function, value={"value": "closed", "metadata": {}}, enqueue=names.append)
    assert names == ["r/closed_4.yaml"]
