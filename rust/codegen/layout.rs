//! Layouts of tensors, each with a dispatch key.

use super::nearest::nearest;

/// The way in which a tensor stores its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    #[default]
    Strided,
    /// Indices and values of the specified elements.
    SparseCoo,
    /// CSR, CSC, BSR and BSC: compressed indices of one dimension, plain indices of the other.
    SparseCsr,
}

/// Layouts other than strided, with their words in a row.
const WORDS: [(&str, Layout); 2] = [("sparse_coo", Layout::SparseCoo), ("sparse_csr", Layout::SparseCsr)];

impl Layout {
    /// The layout for a word of the table, or a hint.
    pub fn parse(word: &str) -> Result<Self, String> {
        let known = WORDS.map(|(known, _)| known);
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, layout)| *layout).ok_or_else(|| {
            match nearest(word, known) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("the layouts are: {}", known.join(", ")),
            }
        })
    }

    /// The dispatch key of this backend's tensors.
    pub fn dispatch_key(self) -> &'static str {
        match self {
            Self::Strided => "PrivateUse1",
            Self::SparseCoo => "SparsePrivateUse1",
            Self::SparseCsr => "SparseCsrPrivateUse1",
        }
    }

    /// The dispatch key of ATen's kernels for the CPU, most of which compose others.
    pub fn cpu_key(self) -> &'static str {
        match self {
            Self::Strided => "CPU",
            Self::SparseCoo => "SparseCPU",
            Self::SparseCsr => "SparseCsrCPU",
        }
    }
}
