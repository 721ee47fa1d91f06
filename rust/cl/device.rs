//! Platforms and devices of the installed drivers, queried once.

use std::sync::OnceLock;

use opencl3::device::{
    Device, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT,
};
use opencl3::platform::get_platforms;
use opencl3::types::{cl_bool, cl_device_id};

use super::check;
use crate::error::{Error, Result};

/// A driver's handle of a root device; valid as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId(pub(super) cl_device_id);

impl DeviceId {
    /// The `cl_device_id`, for interoperation with other OpenCL code.
    pub fn native_handle(self) -> usize {
        self.0 as usize
    }
}

// SAFETY: root devices are never released, and OpenCL device queries are thread-safe.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

/// The type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceType {
    /// Graphics processor; sorted first.
    Gpu,
    /// FPGA, DSP and similar.
    Accelerator,
    /// The host's own cores.
    Cpu,
}

impl DeviceType {
    /// Lower-case name, a value of `TORCH_OPENCL_DEVICES`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Accelerator => "accelerator",
            Self::Cpu => "cpu",
        }
    }
}

/// Everything that the backend queries about a device.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Handle for contexts and queues.
    pub id: DeviceId,
    /// `CL_DEVICE_NAME`.
    pub name: String,
    /// `CL_DEVICE_VENDOR`.
    pub vendor: String,
    /// Name of the platform (driver) it belongs to.
    pub platform: String,
    /// `CL_DRIVER_VERSION`.
    pub driver_version: String,
    /// `CL_DEVICE_VERSION`, such as "OpenCL 3.0 ...".
    pub version: String,
    /// `CL_DEVICE_OPENCL_C_VERSION`.
    pub c_version: String,
    /// GPU, accelerator or CPU.
    pub device_type: DeviceType,
    /// Parallel compute units.
    pub compute_units: u32,
    /// Maximum clock in MHz.
    pub clock_mhz: u32,
    /// Global memory in bytes.
    pub global_mem: u64,
    /// Largest single allocation in bytes.
    pub max_alloc: u64,
    /// Local memory of a work-group in bytes.
    pub local_mem: u64,
    /// Largest work-group.
    pub max_work_group: usize,
    /// Floats in a native vector of the device.
    pub native_vector_floats: u32,
    /// Host and device share one memory, so mapping needs no copy.
    pub host_unified: bool,
    /// Arithmetic in f64.
    pub fp64: bool,
    /// Division and square root of f32 can be correctly rounded if a build option requests it.
    pub exact_quotients: bool,
    /// Arithmetic in f16 (storage in f16 is core functionality).
    pub fp16: bool,
    /// Unique id of the device, if the driver reports one.
    pub uuid: Option<[u8; 16]>,
    /// Bus, device and function of the PCI device, if the driver reports them.
    pub pci: Option<[u32; 3]>,
    /// Major number of the compute capability of an NVIDIA GPU.
    pub compute_capability_major: Option<u32>,
    /// Smallest sub-group of a GPU of Intel's with matrix instructions.
    pub matrix_sub_group: Option<usize>,
    /// The device adds four products of int8 in one instruction, by `cl_khr_integer_dot_product`.
    pub fast_int8_dot: bool,
    /// Extension names.
    pub extensions: Vec<String>,
}

impl DeviceInfo {
    fn query(id: cl_device_id, platform: &str) -> Result<Self> {
        let device = Device::new(id);
        let kind = check("clGetDeviceInfo", device.dev_type())?;
        let extensions: Vec<String> =
            check("clGetDeviceInfo", device.extensions())?.split_whitespace().map(str::to_owned).collect();
        let text = |result: opencl3::Result<String>| result.map(|s| s.trim().to_owned()).unwrap_or_default();
        Ok(Self {
            id: DeviceId(id),
            name: text(device.name()),
            vendor: text(device.vendor()),
            platform: platform.to_owned(),
            driver_version: text(device.driver_version()),
            version: text(device.version()),
            c_version: text(device.opencl_c_version()),
            device_type: if kind & CL_DEVICE_TYPE_GPU != 0 {
                DeviceType::Gpu
            } else if kind & CL_DEVICE_TYPE_CPU != 0 {
                DeviceType::Cpu
            } else {
                DeviceType::Accelerator
            },
            compute_units: check("clGetDeviceInfo", device.max_compute_units())?,
            clock_mhz: device.max_clock_frequency().unwrap_or(0),
            global_mem: check("clGetDeviceInfo", device.global_mem_size())?,
            max_alloc: check("clGetDeviceInfo", device.max_mem_alloc_size())?,
            local_mem: device.local_mem_size().unwrap_or(0),
            max_work_group: check("clGetDeviceInfo", device.max_work_group_size())?,
            native_vector_floats: device.native_vector_width_float().unwrap_or(1),
            host_unified: device.host_unified_memory().unwrap_or(false),
            // A driver without fp64 reports a double configuration of zero, even if it lists the extension.
            fp64: device.double_fp_config().is_ok_and(|config| config != 0),
            exact_quotients: device
                .single_fp_config()
                .is_ok_and(|config| config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0),
            fp16: extensions.iter().any(|name| name == "cl_khr_fp16"),
            uuid: extensions.iter().any(|name| name == "cl_khr_device_uuid").then(|| device.uuid_khr().ok()).flatten(),
            pci: pci_address(&device, &extensions),
            compute_capability_major: extensions
                .iter()
                .any(|name| name == "cl_nv_device_attribute_query")
                .then(|| device.compute_capability_major_nv().ok())
                .flatten(),
            matrix_sub_group: matrix_sub_group(&device, &extensions),
            fast_int8_dot: has_fast_int8_dot(&device, &extensions),
            extensions,
        })
    }

    /// Returns true if `other` is this device, by another driver.
    pub fn is_same_device(&self, other: &Self) -> bool {
        let is_same_uuid = self.uuid.is_some_and(|uuid| uuid != [0; 16]) && self.uuid == other.uuid;
        let is_same_address = self.pci.is_some() && self.pci == other.pci;
        // A driver may present the parts of one device separately.
        self.platform != other.platform && self.device_type == other.device_type && (is_same_uuid || is_same_address)
    }

    /// Returns true if the driver is built on another API of the device's vendor: its own driver knows the device better.
    pub fn is_by_other_vendor(&self) -> bool {
        ["rusticl", "Clover", "Portable Computing Language", "clvk", "OpenCLOn12"].contains(&self.platform.as_str())
    }

    /// (major, minor) of the OpenCL version that the device reports; (1, 2) if it cannot be parsed.
    pub fn version_number(&self) -> (u32, u32) {
        let number = self.version.split_whitespace().nth(1).unwrap_or_default();
        let mut parts = number.split('.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => (1, 2),
        }
    }

    /// Returns true if the driver has a flag for buffers that are larger than `max_alloc`: Intel's driver for GPUs. Its
    /// kernels must be built with an option for such buffers.
    pub fn allows_large_buffers(&self) -> bool {
        self.device_type == DeviceType::Gpu && self.platform.starts_with("Intel(R) OpenCL")
    }

    /// Returns true if the device has 64-bit atomics.
    pub fn has_wide_atomics(&self) -> bool {
        self.extensions.iter().any(|name| name == "cl_khr_int64_base_atomics")
    }

    /// Returns true if the driver compiles each kernel at its first launch, instead of the whole program when it is
    /// built.
    pub fn compiles_at_launch(&self) -> bool {
        self.platform == "Portable Computing Language"
    }

    /// Returns true if the driver compiles clang's builtins. A test program cannot find this out: rusticl's clang
    /// accepts `__builtin_prefetch`, and the translation to SPIR-V then ends the process. So these drivers are listed.
    pub fn has_clang_builtins(&self) -> bool {
        // Both compile for CPUs, with LLVM in every step.
        self.device_type == DeviceType::Cpu
            && ["Portable Computing Language", "Intel(R) OpenCL"].contains(&self.platform.as_str())
    }
}

/// The smallest sub-group of a device with Intel's matrix instructions, which need sub-groups of that size.
fn matrix_sub_group(device: &Device, extensions: &[String]) -> Option<usize> {
    const CL_DEVICE_SUB_GROUP_SIZES_INTEL: u32 = 0x4108;
    let has = |name: &str| extensions.iter().any(|known| known == name);
    if !has("cl_intel_subgroup_matrix_multiply_accumulate") || !has("cl_intel_required_subgroup_size") {
        return None;
    }
    let sizes = device.get_data(CL_DEVICE_SUB_GROUP_SIZES_INTEL).ok()?;
    sizes.chunks_exact(size_of::<usize>()).filter_map(|bytes| bytes.try_into().ok().map(usize::from_ne_bytes)).min()
}

/// Returns true if a device reports an instruction for `dot_acc_sat` of two `char4`. Drivers also offer the function without
/// one, and some then do not compile it.
fn has_fast_int8_dot(device: &Device, extensions: &[String]) -> bool {
    const CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_8BIT_KHR: u32 = 0x1074;
    // The cl_bool `accumulating_saturating_signed_accelerated` of these properties.
    const MEMBER: usize = 3;
    extensions.iter().any(|name| name == "cl_khr_integer_dot_product")
        && device
            .get_data(CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_8BIT_KHR)
            .is_ok_and(|all| all.chunks(size_of::<cl_bool>()).nth(MEMBER).is_some_and(|x| x.iter().any(|b| *b != 0)))
}

/// Bus, device and function of a PCI device, from whichever extension has them.
fn pci_address(device: &Device, extensions: &[String]) -> Option<[u32; 3]> {
    let has = |name: &str| extensions.iter().any(|known| known == name);
    if has("cl_khr_pci_bus_info") {
        let info = device.pcibusinfokhr_intel().ok()?;
        Some([info.pci_bus, info.pci_device, info.pci_function])
    } else if has("cl_nv_device_attribute_query") {
        let slot = device.pci_slot_id_nv().ok()?;
        Some([device.pci_bus_id_nv().ok()?, slot >> 3, slot & 7])
    } else {
        None
    }
}

#[cfg(test)]
impl DeviceInfo {
    /// A fictitious device, to test code that depends only on the description.
    pub fn imagined(id: usize, name: &str, platform: &str, device_type: DeviceType) -> Self {
        Self {
            id: DeviceId(id as cl_device_id),
            name: name.to_owned(),
            vendor: "vendor".to_owned(),
            platform: platform.to_owned(),
            driver_version: "1.0".to_owned(),
            version: "OpenCL 1.2 imagined".to_owned(),
            c_version: "OpenCL C 1.2".to_owned(),
            device_type,
            compute_units: 1,
            clock_mhz: 1,
            global_mem: 1 << 30,
            max_alloc: 1 << 28,
            local_mem: 1 << 15,
            max_work_group: 64,
            native_vector_floats: 4,
            host_unified: true,
            fp64: false,
            exact_quotients: false,
            fp16: false,
            uuid: None,
            pci: None,
            compute_capability_major: None,
            matrix_sub_group: None,
            fast_int8_dot: false,
            extensions: Vec::new(),
        }
    }
}

/// One installed driver and its devices.
#[derive(Clone, Debug)]
pub struct PlatformInfo {
    /// `CL_PLATFORM_NAME`.
    pub name: String,
    /// `CL_PLATFORM_VENDOR`.
    pub vendor: String,
    /// `CL_PLATFORM_VERSION`.
    pub version: String,
    /// Its devices, in the driver's order.
    pub devices: Vec<DeviceInfo>,
}

/// All platforms with their devices. Queried once: the first query initialises the drivers, and PoCL 3.1 crashes if two
/// threads do so at once.
///
/// # Errors
/// [`Error::NoDevice`] if there is no OpenCL loader, no driver or no device, with advice on what to install.
pub fn platforms() -> Result<&'static [PlatformInfo]> {
    static PLATFORMS: OnceLock<Result<Vec<PlatformInfo>>> = OnceLock::new();
    PLATFORMS.get_or_init(find_platforms).as_deref().map_err(Clone::clone)
}

fn find_platforms() -> Result<Vec<PlatformInfo>> {
    let missing = |what: &str| {
        Error::NoDevice(format!(
            "{what} Install an OpenCL driver, for example 'apt install ocl-icd-libopencl1 pocl-opencl-icd' (any CPU) \
             or your GPU vendor's package."
        ))
    };
    let handles =
        get_platforms().map_err(|error| missing(&format!("OpenCL cannot be used on this machine ({error}).")))?;
    if handles.is_empty() {
        return Err(missing("No OpenCL driver is registered with the loader."));
    }
    let platforms: Vec<_> = handles
        .iter()
        .map(|platform| {
            let name = platform.name().unwrap_or_default();
            // A platform without devices returns CL_DEVICE_NOT_FOUND: it is empty, not broken.
            let ids = platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default();
            PlatformInfo {
                vendor: platform.vendor().unwrap_or_default(),
                version: platform.version().unwrap_or_default(),
                devices: ids.into_iter().filter_map(|id| DeviceInfo::query(id, &name).ok()).collect(),
                name,
            }
        })
        .collect();
    if platforms.iter().all(|platform| platform.devices.is_empty()) {
        return Err(missing("The OpenCL drivers of this machine find no device."));
    }
    Ok(platforms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_parsed_and_has_a_default() {
        let mut info = DeviceInfo::imagined(1, "d", "p", DeviceType::Gpu);
        for (text, number) in
            [("OpenCL 3.0 PoCL HSTR: x", (3, 0)), ("OpenCL 1.2", (1, 2)), ("OpenCL x.y", (1, 2)), ("", (1, 2))]
        {
            info.version = text.to_owned();
            assert_eq!(info.version_number(), number);
        }
    }

    #[test]
    fn clang_builtins_are_used_only_on_listed_drivers() {
        let has = |platform, kind| DeviceInfo::imagined(1, "d", platform, kind).has_clang_builtins();
        assert!(has("Portable Computing Language", DeviceType::Cpu));
        assert!(has("Intel(R) OpenCL", DeviceType::Cpu));
        assert!(!has("Portable Computing Language", DeviceType::Gpu));
        assert!(!has("rusticl", DeviceType::Cpu));
    }
}
