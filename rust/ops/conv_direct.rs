//! Convolutions with few channels a group: padded dense planes, and no packing.

use super::conv::{Part, WeightStrides};
use super::epilogue::Epilogue;
use super::gemm::{busy, launch, program};
use super::matrix::{div_up, spans, struct_bytes};
use super::patches::{Spatial, Volume, Window};
use super::plan::Tile;
use super::{Target, Workspace};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::{CachedProgram, Class, Family};

/// Memory for the padded planes of the images that are convolved at a time.
const PLANE_BYTES: i64 = 64 << 20;

/// Padded planes of a source, and where its pixels and taps lie in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planes {
    window: Window,
    before: Spatial,
    start: Spatial,
    sizes: Spatial,
}

impl Planes {
    /// The smallest planes that hold every position a window reads, with rows of pixels filled up to whole vectors.
    fn of(window: Window, lanes: i64) -> Self {
        let mut planes = Self { window, before: [0; 3], start: [0; 3], sizes: [1; 3] };
        let Window { mut pixels, taps, scale, origin, step } = window;
        if let Some(width) = pixels.first_mut() {
            *width = filled(*width, lanes);
        }
        let dims = pixels.into_iter().zip(taps).zip(scale).zip(origin).zip(step);
        let places = planes.before.iter_mut().zip(&mut planes.start).zip(&mut planes.sizes);
        for (((before, start), size), ((((pixels, taps), scale), origin), step)) in places.zip(dims) {
            let reach = (taps - 1).max(0) * step;
            *before = (-(origin + reach.min(0))).max(0);
            *start = origin + *before;
            *size = (pixels - 1) * scale + *start + reach.max(0) + 1;
        }
        if let Some(width) = planes.sizes.first_mut() {
            // A vector of every second element is read as two whole ones.
            *width += lanes;
        }
        planes
    }

    fn count(&self) -> i64 {
        self.sizes.iter().product()
    }

    fn bytes(&self, channels: i64, image_channels: i64, weight: WeightStrides) -> Vec<u8> {
        let Window { pixels, taps, scale, step, .. } = self.window;
        let spatial = [pixels, taps, scale, self.start, step, self.sizes];
        let rest = [channels, image_channels, weight.group, weight.out, weight.source];
        struct_bytes(spatial.into_iter().flatten().chain(rest))
    }
}

const fn filled(width: i64, lanes: i64) -> i64 {
    div_up(width, lanes) * lanes
}

struct Copier<'a> {
    target: &'a Target,
    program: &'a CachedProgram,
    class: Class,
}

impl Copier<'_> {
    /// Copies `images` images from `first` on into planes of `sizes`, `before` zeros in front of them.
    fn planes(&self, source: &Volume, first: i64, images: i64, before: Spatial, sizes: Spatial) -> Result<Workspace> {
        let plane: i64 = sizes.iter().product();
        let bytes = images * source.channels * plane * self.class.size() as i64;
        let planes = self.target.workspace(bytes.max(1) as usize)?;
        let layout = struct_bytes(
            source
                .sizes
                .into_iter()
                .chain(source.strides)
                .chain([source.channel_stride, source.image_stride])
                .chain(before)
                .chain(sizes),
        );
        let args = [
            source.at_image(first).memory,
            Arg::Int(source.dtype.code()),
            Arg::Bytes(&layout),
            self.target.memory(planes.address)?,
        ];
        let rows = sizes.iter().skip(1).product();
        launch(self.target, self.program, "pad_planes", &args, [source.channels, rows, images])?;
        Ok(planes)
    }
}

/// A value for each pixel.
///
/// # Errors
/// As the allocator and the driver report.
pub(super) fn pixels(target: &Target, part: &Part, class: Class) -> Result<()> {
    let program = program(target, Family::Conv, class)?;
    let copier = Copier { target, program: &program, class };
    let Part { out, source, weight, window, groups, .. } = *part;
    let planes = Planes::of(window, Tile::of(target, class).vector());
    let (rows, channels) = (part.out_channels(), source.channels / groups);
    // The planes of a weight follow one another as its first two dimensions do.
    let taps = weight.positions();
    let strides = WeightStrides::new(part.direction, weight.channels * taps, taps, rows, channels);
    let factors = copier.planes(&weight, 0, weight.images, [0; 3], weight.sizes)?;
    let layout = planes.bytes(channels, source.channels, strides);

    let image_rows: i64 = window.pixels.iter().skip(1).product();
    let image_bytes = source.channels * planes.count() * class.size() as i64;
    for (first, images) in spans(source.images, (PLANE_BYTES / image_bytes.max(1)).max(1)) {
        let from = copier.planes(&source, first, images, planes.before, planes.sizes)?;
        let chunk = Part { out: out.at_image(first), ..*part };
        let encoded = chunk.epilogue()?.encode(class);
        let blocks = div_up(busy(target), out.channels * images).min(image_rows).max(1);
        let block = if target.is_cpu() { div_up(image_rows, blocks) } else { 1 };
        let cut = [
            target.memory(from.address)?,
            target.memory(factors.address)?,
            Arg::Bytes(&layout),
            Arg::Long(rows),
            Arg::Long(block),
        ];
        let global = [out.channels, div_up(image_rows, block), images];
        launch(target, &program, "conv_direct", &[&cut[..], &encoded.args()].concat(), global)?;
    }
    Ok(())
}

/// A value for each weight.
///
/// # Errors
/// As the allocator and the driver report.
pub(super) fn weights(
    target: &Target,
    source: &Volume,
    gradient: &Volume,
    window: Window,
    groups: i64,
    class: Class,
    epilogue: &Epilogue,
) -> Result<()> {
    let program = program(target, Family::Conv, class)?;
    let copier = Copier { target, program: &program, class };
    let lanes = Tile::of(target, class).vector();
    let planes = Planes::of(window, lanes);
    let from = copier.planes(source, 0, source.images, planes.before, planes.sizes)?;
    let [width, height, depth] = gradient.sizes;
    let factors = copier.planes(gradient, 0, gradient.images, [0; 3], [filled(width, lanes), height, depth])?;
    let channels = source.channels / groups;
    let layout = planes.bytes(channels, source.channels, WeightStrides { out: 0, source: 0, group: 0 });
    let encoded = epilogue.encode(class);
    let cut =
        [target.memory(from.address)?, target.memory(factors.address)?, Arg::Bytes(&layout), Arg::Long(source.images)];
    let features = channels * window.taps.iter().product::<i64>();
    let global = [features, gradient.channels / groups, groups];
    launch(target, &program, "conv_direct_weight", &[&cut[..], &encoded.args()].concat(), global)
}
