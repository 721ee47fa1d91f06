//! "Did you mean": the known name closest to a mistyped one.

/// The candidate with the fewest edits to `name`, if a third of the letters or fewer differ.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= limit)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's edit distance, one row of the matrix at a time.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, x) in from.chars().enumerate() {
        let mut previous = vec![i + 1];
        for ((y, diagonal), above) in to.chars().zip(&row).zip(row.iter().skip(1)) {
            let left = previous.last().copied().unwrap_or(0);
            previous.push((diagonal + usize::from(x != y)).min(above + 1).min(left + 1));
        }
        row = previous;
    }
    row.last().copied().unwrap_or(0)
}
