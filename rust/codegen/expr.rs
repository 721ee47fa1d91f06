//! A simple analysis of expressions, which finds mistakes before a device's compiler does.

/// OpenCL C builtins without integer overloads; a call with `long` would be ambiguous.
const FLOAT_ONLY: &str = "acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi cbrt \
    ceil copysign cos cosh cospi degrees erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax \
    fmin fmod frexp hypot ilogb isfinite isinf isnan isnormal ldexp lgamma log log10 log1p log2 \
    logb mix modf nan nextafter pow pown powr radians remainder rint rootn round rsqrt sign \
    signbit sin sincos sinh sinpi smoothstep sqrt step tan tanh tanpi tgamma trunc";

/// Builtins, and functions and macros of `math.cl` and the files before it, that are a few instructions.
const SHORT: &str =
    "ANY AS_TM B C NZ SEL TO_TM abs ceil clamped cmul copysign fabs floor fmax fmin m_rint maximum minimum rint \
    select shift_left shift_right sqrt trunc";

/// Functions and macros that select values without computing.
const CHOICES: &str = "B C NZ SEL clamped max maximum min minimum";

/// Names in the expression.
pub fn names(expr: &str) -> Vec<&str> {
    tokens(expr).into_iter().filter(|token| is_identifier(token)).collect()
}

/// A builtin or literal that makes the expression a floating one, if there is any.
pub fn float_part(expr: &str) -> Option<&str> {
    let is_builtin = |name: &str| FLOAT_ONLY.split_whitespace().any(|builtin| builtin == name);
    tokens(expr).into_iter().find(|token| is_builtin(token) || is_float(token))
}

/// An operator, builtin or literal that is wrong for complex numbers, if there is any.
pub fn real_part(expr: &str) -> Option<&str> {
    let operator = expr.find(['*', '/', '<', '>']).and_then(|at| expr.get(at..=at));
    operator.or_else(|| float_part(expr))
}

/// Returns true if the expression calls only functions of a few instructions.
pub fn is_short(expr: &str) -> bool {
    called(expr).all(|name| SHORT.split_whitespace().any(|short| short == name))
}

/// Returns true if an expression on integers of at most 32 bits needs no wider ones: the low bits of a sum, a
/// difference, a product and of bitwise operations depend only on the operands' low bits, and a selection does not
/// change values. An expression with both might compare wrapped values.
pub fn is_narrow(expr: &str) -> bool {
    let is_choice = |name: &str| CHOICES.split_whitespace().any(|choice| choice == name);
    let divides_or_shifts = ["/", "%", "<<", ">>"].into_iter().any(|operator| expr.contains(operator));
    if divides_or_shifts || !called(expr).all(is_choice) {
        return false;
    }
    let chooses = called(expr).next().is_some() || expr.contains(['<', '>', '=', '!', '?']);
    !(chooses && expr.contains(['+', '-', '*', '~']))
}

/// Names of functions that the expression calls.
pub fn called(expr: &str) -> impl Iterator<Item = &str> {
    expr.match_indices('(').filter_map(|(at, _)| {
        let before = expr.get(..at)?.trim_end();
        before.rsplit(|c| !is_word(c)).next().filter(|name| is_identifier(name))
    })
}

/// The expression with each float literal in `LIT()`, which gives it the precision of the compute class.
pub fn marked(expr: &str) -> String {
    let mut text = String::new();
    let mut rest = expr;
    while let Some(start) = rest.find(is_word) {
        let (between, token) = rest.split_at(start);
        let is_number = token.starts_with(|c: char| c.is_ascii_digit()) && !between.ends_with('.');
        let end = if is_number { number_end(token) } else { token.find(|c| !is_word(c)).unwrap_or(token.len()) };
        let (token, after) = token.split_at(end);
        text.push_str(between);
        if is_number && is_float(token) && !token.ends_with(['f', 'F']) {
            text.push_str(&format!("LIT({token})"));
        } else {
            text.push_str(token);
        }
        rest = after;
    }
    text + rest
}

/// End of the number at the start of the string; a sign after the `e` of an exponent belongs to it.
fn number_end(text: &str) -> usize {
    let hexadecimal = text.starts_with("0x");
    let mut before = ' ';
    text.find(|c| {
        let is_sign = !hexadecimal && matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        before = c;
        !(is_word(c) || c == '.' || is_sign)
    })
    .unwrap_or(text.len())
}

/// Refuses source that cannot follow a `return` in a `case`.
pub fn well_formed(expr: &str) -> Result<(), &'static str> {
    if expr.contains(['{', '}']) {
        return Err("it holds a statement");
    }
    balanced(expr)
}

/// Refuses source that is not a C++ expression.
pub fn balanced(expr: &str) -> Result<(), &'static str> {
    if expr.contains(';') {
        return Err("it holds a statement");
    }
    if expr.contains("//") || expr.contains("/*") {
        return Err("it holds a comment");
    }
    let mut open = 0i32;
    for c in expr.chars() {
        open += i32::from(c == '(') - i32::from(c == ')');
        if open < 0 {
            return Err("a `)` closes nothing");
        }
    }
    if open == 0 {
        Ok(())
    } else {
        Err("a `(` is not closed")
    }
}

/// The words of an expression, each with the source before it.
pub fn words_in_place(expr: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = expr
        .char_indices()
        .filter(move |(at, c)| is_word(*c) && !expr.get(..*at).is_some_and(|before| before.ends_with(is_word)));
    starts.filter_map(|(at, _)| {
        let (before, rest) = expr.split_at_checked(at)?;
        Some((before, rest.get(..rest.find(|c| !is_word(c)).unwrap_or(rest.len()))?))
    })
}

/// Returns true for a valid name of a C variable.
pub fn is_identifier(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.chars().all(is_word)
}

/// Names and numbers, without operators; members, such as the `x` of `a.x`, are left out.
fn tokens(expr: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = expr;
    while let Some(start) = rest.find(is_word) {
        let (skipped, token) = rest.split_at(start);
        let is_number = token.starts_with(|c: char| c.is_ascii_digit());
        let end = token.find(|c| !(is_word(c) || is_number && c == '.')).unwrap_or(token.len());
        let (token, after) = token.split_at(end);
        if !skipped.ends_with('.') {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_float(token: &str) -> bool {
    let is_number = token.starts_with(|c: char| c.is_ascii_digit()) && !token.starts_with("0x");
    is_number && token.contains(['.', 'e', 'E'])
}
