// Generated from the kernels by rust/codegen.

/// The kernel `fill` of `fill.cl`.
pub const FILL: EntryPoint<Fill<'static>> = EntryPoint::new("fill");
/// The kernel `swap` of `fill.cl`.
pub const SWAP: EntryPoint<Swap> = EntryPoint::new("swap");
/// The kernel `swap_back` of `fill.cl`.
pub const SWAP_BACK: EntryPoint<SwapBack> = EntryPoint::new("swap_back");
/// Arguments of `swap_back`, the same as another kernel's.
pub type SwapBack = Swap;

/// Arguments in `RANGE_ARGUMENTS`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the kernel describes them")]
pub struct RangeArguments {
    pub first: i64,
    pub last: i64,
}

/// Arguments of `fill` of `fill.cl`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the kernel describes them")]
pub struct Fill<'a> {
    pub out: Memory,
    pub out_dtype: DType,
    pub layout: structs::prelude::Layout,
    pub value: Value,
    pub range: RangeArguments,
    pub mode: i32,
    pub line: LocalBytes,
    pub table: MemHandle,
    pub rest: &'a [u8],
}

impl Arguments for Fill<'_> {
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        #[repr(C)]
        #[derive(Clone, Copy, Pod, Zeroable)]
        struct Packed { out_offset: u64, value: [u64; 2], first: i64, last: i64, out_dtype: i32, mode: i32,  }
        const _: () = assert!(size_of::<Packed>() == 48);
        let packed = Packed { out_offset: self.out.offset, value: self.value.bits(), first: self.range.first, last: self.range.last, out_dtype: self.out_dtype.code(), mode: self.mode,  };
        run(&[Arg::Buffer(self.out.handle), Arg::of(&self.layout), Arg::Local(self.line.0), Arg::Buffer(self.table), Arg::Bytes(self.rest), Arg::of(&packed)])
    }

    fn rare_dtype(&self) -> Option<DType> {
        [self.out_dtype].into_iter().find(|dtype| dtype.is_rare())
    }
}

/// Arguments of `swap` of `fill.cl`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the kernel describes them")]
pub struct Swap {
    pub a: MemHandle,
    pub b: MemHandle,
}

impl Arguments for Swap {
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        run(&[Arg::Buffer(self.a), Arg::Buffer(self.b), ])
    }
}

/// The structs in which kernels' scalars are passed.
pub static PACKED: &[SharedStruct] = &[
    SharedStruct { file: "fill", name: "fill_packed", size: 48, declarations: "typedef struct { ulong out_offset; ulong value[2]; long first; long last; int out_dtype; int mode; } fill_packed;", scalars: &[("out_offset", "ulong", 0), ("value[0]", "ulong", 8), ("value[1]", "ulong", 16), ("first", "long", 24), ("last", "long", 32), ("out_dtype", "int", 40), ("mode", "int", 44), ] },
];
