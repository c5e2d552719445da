// The Python module pith.torch._backend.
#include <torch/csrc/utils/pybind.h>

#include "gradient_compressor.hpp"
#include "process_group_pith.hpp"
#include "registered_memory.hpp"

namespace pith_torch {

namespace {

namespace py = pybind11;

template <class T, class Base>
using IntrusiveClass = py::class_<T, c10::intrusive_ptr<T>, Base>;

c10::intrusive_ptr<c10d::Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, double timeout_s,
                                       std::optional<double> setting_s) {
  const py::gil_scoped_release released;
  const std::chrono::milliseconds timeout(static_cast<int64_t>(timeout_s * 1000));
  auto options = c10::make_intrusive<PithOptions>(timeout, setting_s);
  return c10::make_intrusive<ProcessGroupPith>(store, rank, size, std::move(options));
}

}  // namespace

}  // namespace pith_torch

PYBIND11_MODULE(_backend, module) {
  using namespace pith_torch;
  using pybind11::arg;
  using Released = pybind11::call_guard<pybind11::gil_scoped_release>;
  pybind11::module_::import("torch.distributed");  // registers the base classes

  pybind11::class_<GradientCompressor, std::shared_ptr<GradientCompressor>>(module,
                                                                            "GradientCompressor")
      .def(pybind11::init<const std::string&>(), arg("spec"))
      .def("residual", &GradientCompressor::residual, Released())
      .def("set_shape", &GradientCompressor::set_shape, arg("shapes"))
      .def("scale", &GradientCompressor::scale, arg("factor"), Released())
      .def("stats", &GradientCompressor::stats)
      .def_property_readonly("algorithm", &GradientCompressor::algorithm);

  IntrusiveClass<ProcessGroupPith, c10d::Backend>(module, "ProcessGroupPith")
      .def("allreduce_compressed", &ProcessGroupPith::allreduce_compressed, arg("tensor"),
           arg("compressor"), arg("average") = true, arg("async_op") = true, Released())
      .def_property_readonly("options", &ProcessGroupPith::getBackendOptions)
      .def("failed", &ProcessGroupPith::failed, Released());

  module.def("make_process_group", &make, arg("store"), arg("rank"), arg("size"), arg("timeout_s"),
             arg("setting_s"));
  module.def("empty", &empty_registered, arg("shape"), arg("dtype"));
  module.def("register_new_tensors", &register_new_tensors, arg("on"));
}
