// Definitions in the form of cpp/native. Only read by the code generator's tests, never compiled.
void add(TensorIterator& iter, const Scalar& alpha) {}
void add_out::impl(const Tensor& self, const Tensor& out) {}
at::Tensor& add_compressed_out(const Tensor& self) {}
at::Tensor& add_sparse_out(const Tensor& self) {}
void aminmax(TensorIterator& iter) {}
void aminmax_out::impl(const Tensor& self) {}
void exp_out::impl(const Tensor& self) {}
std::tuple<at::Tensor&, at::Tensor&> frexp_out(
    const Tensor& self) {}
at::Tensor histc(const Tensor& self) {}
at::Tensor& histc_out(const Tensor& self) {}
at::Tensor histc_sparse(const Tensor& self) {}
at::Tensor isnan(const Tensor& self) {}
at::Tensor mm_dtype(const Tensor& self) {}
void mm_out::impl(const Tensor& self) {
  not_a_definition(self);
}
at::Tensor& nonzero_out(const Tensor& self) {}
void sum(TensorIterator& iter) {}

template <class Meta, int kDim>
struct Cat : Meta {};

at::Tensor declared_only(const Tensor& self);
