"""The recursive-descent parser, tokens to a syntax tree; a method's docstring is its grammar rule.

- The grammar is RocketMQ's, with NOT binding tighter than comparisons, and one difference on
  purpose: text after a complete expression is an error, where RocketMQ drops it silently.
- The dialect "rocketray" adds names in double quotes, LIKE, and IN with numbers, which is short for
  comparisons joined by OR. LIKE and ESCAPE are keywords only where no name can stand, so an
  expression of RocketMQ's means the same in both.
- Limits, each a :class:`FilterSyntaxError` that marks the place: :data:`SQL_MAX_CHARS` characters,
  :data:`DEPTH_MAX` levels of brackets, of prefixes and of operators in the tree, :data:`NODES_MAX`
  nodes and list items, counted as they are evaluated (the left side of BETWEEN counts twice). They
  keep the recursion here and in every walk of a tree far from Python's own limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from rocketray.errors import FilterSyntaxError

from . import nodes, reasons
from .coercion import comparator
from .dialect import Dialect, check_rules, current_rules
from .lexer import Token, TokenKind, tokenize
from .nodes import Expression, Kind, as_literal, children, is_boolean
from .operators import IN, Form, Operator, TextOperator

SQL_MAX_CHARS = 4096  # ours: RocketMQ has no limit but the stack of its parser
DEPTH_MAX = 64  # six frames a bracket, so some 400 of Python's 1000
NODES_MAX = 1000  # ours, too
_SHOWN_CHARS = 60  # of an expression that is too long to show
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_EQUALITIES = {each.sign: each for each in Operator if each.is_equality}
_ORDERINGS = {each.sign: each for each in Operator if not each.is_equality}
_PREFIXES = frozenset({TokenKind.PLUS, TokenKind.MINUS, TokenKind.NOT})
_AN_OPERAND = "a property, a value or '('"
_NUMBER_STARTS = frozenset({TokenKind.INTEGER, TokenKind.FLOAT, TokenKind.PLUS, TokenKind.MINUS})
_CONSTANTS = {
    TokenKind.TRUE: nodes.Literal(Kind.BOOLEAN, value=True),
    TokenKind.FALSE: nodes.Literal(Kind.BOOLEAN, value=False),
    TokenKind.NULL: nodes.Literal(Kind.NULL, None),
}


class _TokenReader:
    """A window on the tokens of *sql*: the current one, one before and one after.

    It is at most *depth_max* brackets and prefixes deep. Tokens are read one ahead of the current
    one, and no further: the time to report a mistake does not depend on the text behind it.
    """

    def __init__(self, sql: str, depth_max: int) -> None:
        self.sql = sql
        self._unread = tokenize(sql)
        self._depth = 0
        self._depth_max = depth_max
        self.token = self.previous = next(self._unread)
        """The next token to read; and the one that was read last."""
        self.following = next(self._unread, self.token)
        """The token after :attr:`token`, or the same one if it is the last."""

    def advance(self) -> Token:
        """Read the current token and return it; the next one becomes current."""
        self.previous, self.token = self.token, self.following
        self.following = next(self._unread, self.token)
        return self.previous

    def accept(self, kind: TokenKind) -> bool:
        """Read a token of this *kind*, if it is next; return whether it was."""
        if self.token.kind is not kind:
            return False
        self.advance()
        return True

    def expect(self, kind: TokenKind) -> Token:
        """Read a token, which must be of this *kind*."""
        if self.token.kind is not kind:
            reason = reasons.expected(reasons.described(kind), self.sql, self.token, self.following)
            self.fail_at_token(reason)
        return self.advance()

    def enter(self) -> Token:
        """Read a bracket or prefix, one level deeper."""
        self._depth += 1
        if self._depth > self._depth_max:
            self.fail_at_token(reasons.too_deep(self._depth_max))
        return self.advance()

    def leave(self) -> None:
        """Leave the level of the last :meth:`enter`."""
        self._depth -= 1

    def fail_at_token(self, reason: str) -> NoReturn:
        """Fail with :attr:`token` marked as the mistake."""
        self.fail(reason, self.token.start, self.token.end)

    def fail(self, reason: str, start: int, end: int) -> NoReturn:
        """Raise the error that marks this part of the expression."""
        raise FilterSyntaxError(reason, self.sql, start, end)


def parse(sql: str, dialect: Dialect = "rocketmq", rules: int | None = None) -> Expression:
    """Return the syntax tree of *sql*; None takes the current rules.

    Raises :class:`FilterSyntaxError`, which marks the place.
    """
    rules = current_rules(dialect) if rules is None else check_rules(dialect, rules)
    if len(sql) > SQL_MAX_CHARS:
        shown = sql[:_SHOWN_CHARS]
        raise FilterSyntaxError(reasons.too_long(len(sql), SQL_MAX_CHARS), shown, 0, len(shown))
    is_ours = dialect == "rocketray"
    return _Parser(sql, is_extended=is_ours, is_numeric=is_ours and rules > 1).selector()


class _Operand(NamedTuple):
    """A parsed part and its position, so that a check can mark it."""

    node: Expression
    start: int
    end: int


class _Size(NamedTuple):
    height: int
    nodes: int


class _Parser:
    """The state of one parse: the tokens, and the size of the tree."""

    def __init__(self, sql: str, *, is_extended: bool, is_numeric: bool) -> None:
        self._tokens = _TokenReader(sql, DEPTH_MAX)
        self._is_extended = is_extended
        self._is_numeric = is_numeric
        self._sizes: dict[int, _Size] = {}  # by id: every measured node is alive, or measured again

    # -- the grammar, loosest binding first ---------------------------------------------------

    def selector(self) -> Expression:
        """``selector = or END``."""
        operand = self._operand(self._tokens.token.start, self._or())
        tokens = self._tokens
        if tokens.token.kind is not TokenKind.END:
            tokens.fail_at_token(
                reasons.after_end(tokens.sql, tokens.previous, tokens.token, tokens.following)
            )
        return self._truth_value(operand)

    def _or(self) -> Expression:
        """``or = and { OR and }``."""
        operands = [self._operand(self._tokens.token.start, self._and())]
        while self._tokens.accept(TokenKind.OR):
            operands.append(self._operand(self._tokens.token.start, self._and()))
        return operands[0].node if len(operands) == 1 else self._joined(nodes.Or, operands)

    def _and(self) -> Expression:
        """``and = equality { AND equality }``."""
        operands = [self._operand(self._tokens.token.start, self._equality())]
        while self._tokens.accept(TokenKind.AND):
            operands.append(self._operand(self._tokens.token.start, self._equality()))
        return operands[0].node if len(operands) == 1 else self._joined(nodes.And, operands)

    def _equality(self) -> Expression:
        """``equality = comparison { ("=" | "<>") comparison | IS [NOT] NULL }``."""
        left = self._operand(self._tokens.token.start, self._comparison())
        while True:
            if operator := _EQUALITIES.get(self._tokens.token.text):
                self._tokens.advance()
                right = self._operand(self._tokens.token.start, self._comparison())
                node = self._equal(operator, left, right)
            elif self._tokens.accept(TokenKind.IS):
                negated = self._tokens.accept(TokenKind.NOT)
                self._tokens.expect(TokenKind.NULL)
                node = self._measured(nodes.IsNull(left.node, negated), left.start)
            else:
                return left.node
            left = self._operand(left.start, node)

    def _comparison(self) -> Expression:
        """``comparison = unary { order | [NOT] between | [NOT] text test }``."""
        left = self._operand(self._tokens.token.start, self._unary())
        while node := self._compared(left):
            left = self._operand(left.start, node)
        return left.node

    def _unary(self) -> Expression:
        """``unary = ("+" | "-" | NOT) unary | primary``."""
        if self._tokens.token.kind not in _PREFIXES:
            return self._primary()
        prefix = self._tokens.enter()
        operand = self._operand(self._tokens.token.start, self._unary())
        self._tokens.leave()
        if prefix.kind is TokenKind.PLUS:
            return operand.node
        if prefix.kind is TokenKind.MINUS:
            return self._measured(nodes.Negate(operand.node), prefix.start)
        return self._measured(nodes.Not(self._truth_value(operand)), prefix.start)

    def _primary(self) -> Expression:
        """``primary = "(" or ")" | leaf``."""
        if self._tokens.token.kind is not TokenKind.OPEN:
            return self._measured(self._leaf(), self._tokens.token.start)
        self._tokens.enter()
        node = self._or()
        self._tokens.expect(TokenKind.CLOSE)
        self._tokens.leave()
        return node

    def _leaf(self) -> Expression:
        """``leaf = name | string | integer | float | TRUE | FALSE | NULL``."""
        token = self._tokens.token
        if token.kind in _CONSTANTS:
            node: Expression = _CONSTANTS[token.kind]
        elif token.kind is TokenKind.IDENTIFIER:
            node = nodes.Property(token.text)
        elif token.kind is TokenKind.QUOTED and self._is_extended:
            node = nodes.Property(token.text[1:-1])
        elif token.kind is TokenKind.STRING:
            node = nodes.Literal(Kind.STRING, _unquote(token))
        elif token.kind is TokenKind.INTEGER:
            node = self._integer(token)
        elif token.kind is TokenKind.FLOAT:
            node = self._double(token)
        else:
            self._tokens.fail_at_token(
                reasons.expected(_AN_OPERAND, self._tokens.sql, token, self._tokens.following)
            )
        self._tokens.advance()
        return node

    # -- the parts of a comparison ------------------------------------------------------------

    def _compared(self, left: _Operand) -> Expression | None:
        """Return the comparison of *left* that begins here; None if none does."""
        if operator := _ORDERINGS.get(self._tokens.token.text):
            self._tokens.advance()
            right = self._operand(self._tokens.token.start, self._unary())
            return self._ordered(operator, left, right)
        negated = self._tokens.token.kind is TokenKind.NOT
        token = self._tokens.following if negated else self._tokens.token
        text_operator = self._text_operator(token)
        if text_operator is None and token.kind is not TokenKind.BETWEEN:
            return None
        if negated:
            self._tokens.advance()
        self._tokens.advance()
        if text_operator is None:
            return self._between(left, negated=negated)
        return self._text_test(text_operator, left, negated=negated)

    def _text_operator(self, token: Token) -> TextOperator | None:
        operator = token.text_operator
        if operator is None or (operator.is_extension and not self._is_extended):
            return None
        return operator

    def _text_test(self, operator: TextOperator, left: _Operand, *, negated: bool) -> Expression:
        """``text test = operator ( string | texts | pattern )``."""
        if not operator.takes_any and not isinstance(left.node, nodes.Property):
            reason = reasons.without_property(operator.word, left.node)
            self._tokens.fail(reason, left.start, left.end)
        if operator.form is Form.TEXTS:
            self._tokens.expect(TokenKind.OPEN)
            if operator is IN and self._tokens.token.kind in _NUMBER_STARTS:
                return self._in_numbers(left, negated=negated)
        start = self._tokens.token.start
        constants = [_unquote(self._tokens.expect(TokenKind.STRING))]
        if operator.form is Form.TEXTS:
            while self._tokens.accept(TokenKind.COMMA):
                constants.append(_unquote(self._tokens.expect(TokenKind.STRING)))
            self._tokens.expect(TokenKind.CLOSE)
        elif operator.form is Form.PATTERN and self._tokens.token.text.upper() == "ESCAPE":
            self._tokens.advance()
            constants.append(_unquote(self._tokens.expect(TokenKind.STRING)))
        try:
            operator.test(tuple(constants))
        except ValueError as error:
            self._tokens.fail(str(error), start, self._tokens.previous.end)
        node = nodes.TextTest(operator, left.node, tuple(constants), negated)
        return self._measured(node, left.start)

    def _between(self, left: _Operand, *, negated: bool) -> Expression:
        """``between = BETWEEN unary AND unary``."""
        low = self._operand(self._tokens.token.start, self._unary())
        self._tokens.expect(TokenKind.AND)
        high = self._operand(self._tokens.token.start, self._unary())
        if negated:
            below = self._ordered(Operator.LT, left, low)
            above = self._ordered(Operator.GT, left, high)
            return self._measured(nodes.Or((below, above)), left.start)
        at_least = self._ordered(Operator.GE, left, low)
        at_most = self._ordered(Operator.LE, left, high)
        self._check_bounds(low, high)
        return self._measured(nodes.And((at_least, at_most)), left.start)

    def _in_numbers(self, left: _Operand, *, negated: bool) -> Expression:
        """``numbers = IN "(" number { "," number } ")"``, if the dialect has it."""
        if not self._is_extended:
            self._tokens.fail_at_token(reasons.NO_NUMBERS_IN_LIST)
        operator = Operator.NE if negated else Operator.EQ
        tests: list[_Operand] = []
        while not tests or self._tokens.accept(TokenKind.COMMA):
            item = self._operand(self._tokens.token.start, self._unary())
            literal = as_literal(item.node)
            if literal is None or not literal.kind.is_number:
                self._tokens.fail(reasons.MIXED_LIST, item.start, item.end)
            tests.append(self._operand(left.start, self._equal(operator, left, item)))
        self._tokens.expect(TokenKind.CLOSE)
        if len(tests) == 1:
            return tests[0].node
        return self._joined(nodes.And if negated else nodes.Or, tests)

    # -- checks and measures ------------------------------------------------------------------

    def _joined(
        self, node_type: type[nodes.And | nodes.Or], operands: Sequence[_Operand]
    ) -> Expression:
        flat: list[Expression] = []
        for operand in operands:
            node = self._truth_value(operand)
            flat.extend(node.operands if isinstance(node, node_type) else (node,))
        return self._measured(node_type(tuple(flat)), operands[0].start)

    def _truth_value(self, operand: _Operand) -> Expression:
        node = operand.node
        if is_boolean(node):
            return node
        if not isinstance(node, nodes.Property):
            self._tokens.fail(reasons.NO_TRUTH_VALUE, operand.start, operand.end)
        return self._measured(nodes.BooleanCast(node), operand.start)

    def _equal(self, operator: Operator, left: _Operand, right: _Operand) -> Expression:
        for operand in (left, right):
            if operand.node == _CONSTANTS[TokenKind.NULL]:
                self._tokens.fail(reasons.equal_to_null(operator), operand.start, operand.end)
        kinds = [each.node.kind for each in (left, right) if isinstance(each.node, nodes.Literal)]
        if len(kinds) == 2 and kinds[0] is Kind.BOOLEAN and kinds[1] is not Kind.BOOLEAN:
            self._tokens.fail(reasons.boolean_with_other(kinds[1]), right.start, right.end)
        return self._compare(operator, left, right)

    def _ordered(self, operator: Operator, left: _Operand, right: _Operand) -> Expression:
        for operand in (left, right):
            reason = reasons.not_ordered(operand.node, operator)
            if reason:
                self._tokens.fail(reason, operand.start, operand.end)
        return self._compare(operator, left, right)

    def _compare(self, operator: Operator, left: _Operand, right: _Operand) -> Expression:
        node = nodes.Compare(operator, left.node, right.node, self._is_numeric)
        return self._measured(node, left.start)

    def _check_bounds(self, low: _Operand, high: _Operand) -> None:
        """Fail on BETWEEN of two literal numbers with an empty range."""
        left, right = low.node, high.node
        if isinstance(left, nodes.Literal) and isinstance(right, nodes.Literal):
            order = comparator(left.kind, right.kind)(left.value, right.value)
            if order > 0:
                self._tokens.fail(reasons.EMPTY_RANGE, low.start, high.end)

    def _integer(self, token: Token) -> nodes.Literal:
        value = int(token.text.rstrip("lL"))
        if value > _INT64_MAX:
            self._tokens.fail_at_token(reasons.INTEGER_TOO_LARGE)
        # The suffix L does not make a literal 64 bits wide: RocketMQ keeps 32 bits if the value
        # fits.
        return nodes.Literal(Kind.INT32 if value <= _INT32_MAX else Kind.INT64, value)

    def _double(self, token: Token) -> nodes.Literal:
        value = float(token.text)
        # RocketMQ refuses what is below Double.MIN_VALUE, and so 0.0, too.
        if value in (0.0, float("inf")):
            self._tokens.fail_at_token(reasons.double_out_of_range(is_zero=value == 0.0))
        return nodes.Literal(Kind.DOUBLE, value)

    def _measured(self, node: Expression, start: int) -> Expression:
        """Return *node*, or fail and mark it from *start* when its tree is too deep or too large.

        A cast adds no depth: using a property as a truth value is not nesting.
        """
        parts = [self._sizes[id(child)] for child in children(node)]
        items = (
            len(node.constants)
            if isinstance(node, nodes.TextTest) and node.operator.form is Form.TEXTS
            else 0
        )
        count = 1 + items + sum(part.nodes for part in parts)
        below = max((part.height for part in parts), default=-1)
        height = below if isinstance(node, nodes.BooleanCast) else below + 1
        if height > DEPTH_MAX:
            self._tokens.fail(reasons.too_deep(DEPTH_MAX), start, self._tokens.previous.end)
        if count > NODES_MAX:
            self._tokens.fail(reasons.too_many(NODES_MAX), start, self._tokens.previous.end)
        self._sizes[id(node)] = _Size(height, count)
        return node

    def _operand(self, start: int, node: Expression) -> _Operand:
        return _Operand(node, start, self._tokens.previous.end)


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")
