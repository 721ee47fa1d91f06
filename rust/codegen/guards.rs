//! Directives around each kernel, so that a program can be built with one kernel: with `ONE_KERNEL` and `KERNEL_<name>`
//! defined, the others are excluded.

use std::fmt::Write;

use super::kernels::{header, without_comments};

/// The source of a file with the directives. `Err` has the line of a kernel whose body has no end.
pub fn guarded(text: &str) -> Result<String, usize> {
    let code = without_comments(text);
    let mut printed = String::with_capacity(text.len() * 2);
    let mut copied = 0;
    for (keyword, _) in code.match_indices("__kernel") {
        if keyword < copied {
            continue;
        }
        let line = || code.get(..keyword).unwrap_or_default().matches('\n').count() + 1;
        let header = header(&code, keyword).ok_or_else(line)?;
        let end = end_of_body(&code, header.body).ok_or_else(line)?;
        let start = code.get(..keyword).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        printed.push_str(text.get(copied..start).unwrap_or_default());
        // Writing to a String cannot fail.
        let _ = writeln!(printed, "#if !defined(ONE_KERNEL) || defined(KERNEL_{})", header.name);
        printed.push_str(text.get(start..end).unwrap_or_default());
        printed.push_str("\n#endif");
        copied = end;
    }
    printed.push_str(text.get(copied..).unwrap_or_default());
    Ok(printed)
}

/// The position after the brace that closes a body: at the end of its first line, or the first one at the start of a
/// line. Other braces cannot be counted, as directives may select one of two lines that open a block.
fn end_of_body(code: &str, body: usize) -> Option<usize> {
    let rest = code.get(body..)?;
    let first = rest.lines().next()?;
    if let Some(one_line) = first.trim_end().strip_suffix('}') {
        if one_line.matches('{').count() == one_line.matches('}').count() {
            return Some(body + one_line.len() + 1);
        }
    }
    Some(body + rest.find("\n}")? + 2)
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn each_kernel_can_be_left_out() {
        let text = "int f() { return 1; }\n// a __kernel\n__kernel GROUPS\nvoid a(int x) {\n  if (x) { f(); }\n}\n\n\
                    struct { int y; } b_packed; __kernel void b() {}\nint g;\n";
        let expected = "int f() { return 1; }\n// a __kernel\n#if !defined(ONE_KERNEL) || defined(KERNEL_a)\n\
                        __kernel GROUPS\nvoid a(int x) {\n  if (x) { f(); }\n}\n#endif\n\n\
                        #if !defined(ONE_KERNEL) || defined(KERNEL_b)\nstruct { int y; } b_packed; __kernel void b() \
                        {}\n#endif\nint g;\n";
        assert_eq!(guarded(text).as_deref(), Ok(expected));
        assert_eq!(guarded("\n__kernel void a() {"), Err(2));
    }
}
