//! Compiled kernel programs.

use std::ffi::CString;

use opencl3::program::{
    build_program, create_program_with_binary, create_program_with_source, get_program_build_info, get_program_info,
    release_program, CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_NUM_KERNELS,
};
use opencl3::types::cl_program;

use super::cache_check::FirstLaunch;
use super::{check, Context, DeviceId, Kernel};
use crate::error::{Error, Result};

/// An owned `cl_program` that has been built.
#[derive(Debug)]
pub struct Program {
    handle: cl_program,
    device: DeviceId,
    first_launches: Option<FirstLaunch>,
}

// SAFETY: programs are reference counted by the driver; creating kernels from one is thread-safe.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

/// The code of the error for a kernel that a program does not have.
pub const INVALID_KERNEL_NAME: i32 = opencl3::error_codes::CL_INVALID_KERNEL_NAME;

impl Program {
    /// Compiles OpenCL C source.
    ///
    /// `name` and `device` are used in the message of [`Error::Build`].
    pub fn from_source(context: &Context, source: &str, options: &str, name: &str, device: &str) -> Result<Self> {
        let handle = check("clCreateProgramWithSource", create_program_with_source(context.handle, &[source]))?;
        let program = Self { handle, device: context.device(), first_launches: None };
        let failure = |reason: &str| Error::Build {
            program: name.to_owned(),
            device: device.to_owned(),
            log: format!("{reason}\n{}", program.log(context).trim_matches(char::from(0))),
        };
        program.build(context, options).map_err(|error| match error {
            Error::OpenCl { .. } => failure(&error.message()),
            other => other,
        })?;
        if program.kernels()? == 0 {
            return Err(failure("The driver reports a successful build, but the program has no kernels."));
        }
        Ok(program)
    }

    /// Sets what the driver does at the first launch of a kernel: it is announced to [`CacheCheck`](super::CacheCheck).
    #[must_use]
    pub fn with_first_launches(mut self, first: FirstLaunch) -> Self {
        self.first_launches = Some(first);
        self
    }

    fn kernels(&self) -> Result<usize> {
        let info = check("clGetProgramInfo", get_program_info(self.handle, CL_PROGRAM_NUM_KERNELS))?;
        Ok(info.to_size())
    }

    /// Loads a result of [`Self::binary`] for the same device and driver.
    pub fn from_binary(context: &Context, binary: &[u8], options: &str) -> Result<Self> {
        // SAFETY: the device is the context's own; the driver validates the bytes.
        let result = unsafe { create_program_with_binary(context.handle, &[context.device().0], &[binary]) };
        let handle = check("clCreateProgramWithBinary", result)?;
        let program = Self { handle, device: context.device(), first_launches: None };
        program.build(context, options)?;
        Ok(program)
    }

    fn build(&self, context: &Context, options: &str) -> Result<()> {
        let options = CString::new(options)
            .map_err(|_| Error::Invalid(format!("build options contain a NUL byte: {options:?}")))?;
        let result = build_program(self.handle, &[context.device().0], &options, None, std::ptr::null_mut());
        check("clBuildProgram", result)
    }

    fn log(&self, context: &Context) -> String {
        get_program_build_info(self.handle, context.device().0, CL_PROGRAM_BUILD_LOG)
            .map(|info| info.to_string())
            .unwrap_or_else(|code| format!("(no build log: status {code})"))
    }

    /// The device binary, for the disk cache and for bundles.
    pub fn binary(&self) -> Result<Vec<u8>> {
        let info = check("clGetProgramInfo", get_program_info(self.handle, CL_PROGRAM_BINARIES))?;
        info.to_vec_vec_uchar()
            .into_iter()
            .next()
            .ok_or_else(|| Error::Invalid("the driver returned no program binary".to_owned()))
    }

    /// Names of the program's kernels, separated by semicolons.
    pub fn kernel_names(&self) -> Result<String> {
        let info = check("clGetProgramInfo", get_program_info(self.handle, CL_PROGRAM_KERNEL_NAMES))?;
        Ok(info.to_string())
    }

    /// Creates a kernel by name.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        Kernel::new(self.handle, self.device, name, self.first_launches)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once.
        let _ = unsafe { release_program(self.handle) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cl::platforms;

    /// The first device of this machine; like the backend, the tests need a driver.
    fn context() -> Context {
        let id = platforms().unwrap().iter().flat_map(|platform| &platform.devices).next().unwrap().id;
        Context::new(id).unwrap()
    }

    #[test]
    fn a_program_that_does_not_compile_is_an_error_with_the_log() {
        let source = "__kernel void broken(__global int *x) { x[0] = no_such_name; }";
        let result = Program::from_source(&context(), source, "", "pointwise -D CLASS_F", "device");
        let Err(Error::Build { program, log, .. }) = result else { unreachable!("{result:?}") };
        assert_eq!(program, "pointwise -D CLASS_F");
        assert!(log.contains("CL_BUILD_PROGRAM_FAILURE"), "{log}");
        assert!(log.contains("no_such_name"), "{log}");
    }

    #[test]
    fn a_program_without_kernels_is_an_error() {
        let result = Program::from_source(&context(), "int one(void) { return 1; }", "", "one", "device");
        let Err(Error::Build { log, .. }) = result else { unreachable!("{result:?}") };
        assert!(log.contains("no kernels"), "{log}");
    }

    #[test]
    fn a_binary_gives_the_kernels_of_its_source() {
        let context = context();
        let source = "__kernel void one(__global int *x) { x[0] = 1; }";
        let program = Program::from_source(&context, source, "", "one", "device").unwrap();
        let loaded = Program::from_binary(&context, &program.binary().unwrap(), "").unwrap();
        assert_eq!(loaded.kernel("one").unwrap().name(), "one");
        assert!(loaded.kernel("two").is_err());
    }

    #[test]
    fn groups_that_are_too_large_are_refused_by_name_and_sizes() {
        let source = "__kernel void one(__global int *x) { x[0] = 1; }";
        let program = Program::from_source(&context(), source, "", "one", "device").unwrap();
        let kernel = program.kernel("one").unwrap();
        let most = kernel.largest_group();
        assert!(most > 1);
        assert_eq!([vec![], vec![most], vec![1, most, 1]].map(|local| kernel.check_group(&local)), [(); 3].map(Ok));
        let refused = kernel.check_group(&[most, 2]).unwrap_err().message();
        let sizes = [format!("groups of {} work-items [{most}, 2]", 2 * most), format!("groups of {most} at most")];
        assert!(refused.contains("kernel one") && sizes.iter().all(|size| refused.contains(size)), "{refused}");
    }
}
