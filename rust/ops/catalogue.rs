//! Lists the generic programs of a device without launching anything. Bundles are built from this list.
//!
//! Most families have one program for each compute class and width of vectors. Families that build programs for dtypes
//! or shapes (matmuls, convolutions, attention) list the usual ones; other programs are recorded when a script runs.

use std::collections::BTreeMap;

use super::core::forms::{rare, rows_and_columns, Form, ALL, FLOATS, FLOATS_AND_COMPLEX, REALS, SIGNED};
use super::core::geometry::Geometry;
use super::{attention, convolution, copy, fft, foreach, linalg, matmul, optimizer, pointwise};
use super::{random, scan, softmax, Target};
use crate::error::Result;
use crate::kernels::{Class, Family, Listing, Spec, Switch};

/// Families whose programs have the geometry as their only constants, and their classes.
const BY_GEOMETRY: [(Family, &[Class]); 12] = [
    (Family::EmbeddingBag, &FLOATS),
    (Family::Sparse, &FLOATS_AND_COMPLEX),
    (Family::SamplingGrad, &FLOATS),
    (Family::SegmentReduce, &FLOATS),
    (Family::Sort, &REALS),
    (Family::Loss, &FLOATS),
    (Family::Margin, &FLOATS),
    (Family::Ctc, &FLOATS),
    (Family::GridSampler, &FLOATS),
    (Family::Pool, &REALS),
    (Family::FractionalMaxPool, &FLOATS),
    (Family::Rnn, &FLOATS),
];
/// Families with programs in the geometries of rows and of columns, and their classes.
const BY_ROWS_AND_COLUMNS: [(Family, &[Class]); 4] = [
    (Family::ArgReduce, &REALS),
    (Family::VarMean, &FLOATS),
    (Family::Norm, &FLOATS),
    (Family::Resample, &[Class::Float, Class::Integer, Class::Double, Class::Complex]),
];

/// Lists the programs, ordered by name.
///
/// # Errors
/// Errors of starting the device.
pub fn catalogue(device: i32) -> Result<Vec<Listing>> {
    let target = Target::at(device)?;
    let mut catalogue = Catalogue { target, programs: BTreeMap::new() };
    catalogue.by_geometry();
    catalogue.plain();
    catalogue.all(Family::Softmax, softmax::forms(&target));
    catalogue.all(Family::Scan, scan::forms(&target));
    catalogue.all(Family::Fft, fft::forms(&target));
    catalogue.all(Family::ForeachNorm, foreach::norm::forms(&target));
    catalogue.all(Family::Optimizer, optimizer::forms(&target));
    catalogue.all(Family::Linalg, linalg::forms(&target));
    catalogue.all(Family::Householder, linalg::panel_forms(&target));
    catalogue.all(Family::Transpose, copy::transpose::forms(&target));
    catalogue.all(Family::Cat, copy::cat::forms(&target));
    catalogue.all(Family::Conv, convolution::direct::forms(&target));
    catalogue.all(Family::Winograd, convolution::winograd::forms(&target));
    catalogue.all(Family::AttentionQuery, attention::query::forms(&target));
    catalogue.all(Family::AttentionTile, attention::tile::forms(&target).unwrap_or_default());
    catalogue.all(Family::AttentionTileBackward, attention::tile_backward::forms(&target).unwrap_or_default());
    for (family, form) in attention::forms(&target).into_iter().chain(matmul::forms(&target)) {
        catalogue.add(family, form, Switch::default());
    }
    for class in [Class::Float, Class::Integer, Class::Double] {
        catalogue.add(Family::Random, (class, Spec::generic()), random::switch());
    }
    for (family, form, switch) in pointwise::forms(&target).into_iter().chain(foreach::forms(&target)) {
        catalogue.add(family, form, switch);
    }
    let mut programs: Vec<Listing> = catalogue.programs.into_values().collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

struct Catalogue {
    target: Target,
    /// The programs by their keys.
    programs: BTreeMap<String, Listing>,
}

impl Catalogue {
    fn add(&mut self, family: Family, (class, spec): Form, switch: Switch) {
        let device = self.target.device;
        if class.check(&device.info).is_ok() {
            let listing = Listing::new(device, family, class, &spec, switch);
            self.programs.insert(listing.key.clone(), listing);
        }
    }

    fn all(&mut self, family: Family, forms: Vec<Form>) {
        forms.into_iter().for_each(|form| self.add(family, form, Switch::default()));
    }

    fn by_geometry(&mut self) {
        for (family, classes) in BY_GEOMETRY {
            for class in classes {
                let geometry = Geometry::of(&self.target, *class);
                self.add(family, (*class, geometry.define(Spec::generic())), Switch::default());
            }
        }
        for class in FLOATS {
            let spec = Geometry::of(&self.target, class).define(Spec::generic()).define("LANES", 1);
            self.add(Family::Sampling, (class, spec), Switch::default());
        }
        for (family, classes) in BY_ROWS_AND_COLUMNS {
            for (class, geometry) in rows_and_columns(&self.target, classes) {
                self.add(family, (class, geometry.define(Spec::generic())), Switch::default());
            }
        }
        for (class, geometry) in rows_and_columns(&self.target, &ALL) {
            for (spec, has_power) in [(Spec::generic(), 0), (rare(), 0), (Spec::generic(), 1)] {
                let spec = geometry.define(spec).define("HAS_POWER", has_power);
                self.add(Family::Reduce, (class, spec), Switch::default());
            }
        }
    }

    /// Programs without constants.
    fn plain(&mut self) {
        for class in ALL {
            self.add(Family::Index, (class, rare()), Switch::default());
        }
        let factory = [Class::Float, Class::Double, Class::Integer, Class::Complex, Class::ComplexDouble];
        let families: [(Family, &[Class]); 5] = [
            (Family::Index, &SIGNED),
            (Family::Factory, &factory),
            (Family::Assertion, &[Class::Float]),
            (Family::Copy, &[Class::Integer]),
            (Family::ResampleBytes, &[Class::Integer]),
        ];
        for (family, classes) in families {
            classes.iter().for_each(|class| self.add(family, (*class, Spec::generic()), Switch::default()));
        }
    }
}
