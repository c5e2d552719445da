#include "compressor.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "array_argument.hpp"
#include "memory.hpp"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "waiting.hpp"

namespace pith::python {

Compressor::Compressor(const std::string& spec) : spec_(spec) {
  check(pithCompressorCreate(&handle_, spec.c_str()));
}

Compressor::~Compressor() { pithCompressorDestroy(handle_); }

namespace {

pithCompressorStats_t stats_of(pithCompressor_t compressor) {
  pithCompressorStats_t stats = {};
  stats.size = sizeof stats;
  check(pithCompressorGetStats(compressor, &stats));
  return stats;
}

}  // namespace

nb::object Compressor::stats() const {
  const pithCompressorStats_t stats = stats_of(handle_);
  nb::dict fields;
  fields["calls"] = stats.calls;
  fields["count"] = stats.count;
  fields["density_target"] = stats.density_target;
  fields["density"] = stats.density;
  fields["threshold"] = stats.threshold;
  fields["selected_local"] = stats.selected_local;
  fields["selected_union"] = stats.selected_union;
  fields["leader"] = stats.leader;
  fields["bypassed"] = stats.bypassed != 0;
  fields["gain"] = stats.gain;
  fields["residual_norm"] = stats.residual_norm;
  fields["imbalance"] = stats.imbalance;
  fields["bytes_sent"] = stats.bytes_sent;
  fields["bytes_received"] = stats.bytes_received;
  fields["nonfinite"] = stats.nonfinite;
  fields["select_seconds"] = stats.select_seconds;
  fields["exchange_seconds"] = stats.exchange_seconds;
  fields["total_seconds"] = stats.total_seconds;
  fields["predicted_seconds"] = stats.predicted_seconds;
  fields["algorithm"] = stats.algorithm;
  return nb::module_::import_("pith.stats").attr("CompressorStats")(**fields);
}

nb::bytes Compressor::save() const {
  std::size_t bytes = 0;
  check(pithCompressorSave(handle_, nullptr, &bytes));
  std::vector<char> state(bytes);
  check(without_gil([&] { return pithCompressorSave(handle_, state.data(), &bytes); }));
  return nb::bytes(state.data(), bytes);
}

void Compressor::load(const nb::object& state) {
  const ArrayArgument bytes("state", state, Access::read);
  if (bytes.on_device()) refuse("state is on a device, expected host memory");
  check(without_gil([&] { return pithCompressorLoad(handle_, bytes.data(), bytes.bytes()); }));
}

void Compressor::reset() {
  if (lends_memory_) {
    raise(pithInvalidUsage,
          "reset would free the memory that accumulator() has lent, expected a new Compressor");
  }
  check(without_gil([this] { return pithCompressorReset(handle_); }));
}

void Compressor::scale(float factor) {
  check(without_gil([&] { return pithCompressorScale(handle_, factor); }));
}

namespace {

// nanobind's own error would name neither the argument nor what was expected.
template <class T>
T item_as(nb::handle item, const std::string& argument, const std::string& expected) {
  T value;
  if (nb::try_cast(item, value)) return value;
  const auto found = nb::cast<std::string>(nb::repr(item));
  throw nb::type_error((argument + " has " + found + ", expected " + expected).c_str());
}

}  // namespace

void Compressor::set_shape(const nb::iterable& shapes) {
  std::vector<std::size_t> rows;
  std::vector<std::size_t> columns;
  for (nb::handle shape : shapes) {
    const auto sizes = item_as<std::vector<std::size_t>>(
        shape, "shapes", "a shape: a sequence of integers, none negative");
    rows.push_back(sizes.empty() ? 1 : sizes.front());
    columns.push_back(1);
    for (std::size_t i = 1; i < sizes.size(); ++i) {
      std::size_t& all = columns.back();
      if (__builtin_mul_overflow(all, sizes[i], &all)) all = SIZE_MAX;  // refused
    }
  }
  check(pithCompressorSetShape(handle_, rows.data(), columns.data(), rows.size()));
}

void Compressor::set_graph(const nb::iterable& edges) {
  std::vector<int> from;
  std::vector<int> to;
  for (nb::handle edge : edges) {
    const auto [one, other] =
        item_as<std::pair<int, int>>(edge, "edges", "a pair of ranks, two integers");
    from.push_back(one);
    to.push_back(other);
  }
  check(pithCompressorSetGraph(handle_, from.data(), to.data(), from.size()));
}

nb::object Compressor::residual() const {
  const std::size_t count = stats_of(handle_).count;
  nb::object array = nb::module_::import_("pith.arrays").attr("empty_private")(count, "float32");
  const ArrayArgument out("residual", array, Access::write);
  check(without_gil(
      [&] { return pithCompressorGetResidual(handle_, static_cast<float*>(out.data()), count); }));
  return array;
}

void* Compressor::accumulator(std::size_t count) {
  void* memory = nullptr;
  check(pithCompressorGetAccumulator(handle_, &memory, count, pithFloat32));
  lends_memory_ = true;
  return memory;
}

namespace {

nb::object accumulator(nb::pointer_and_handle<Compressor> self, std::size_t count) {
  void* const data = self.p->accumulator(count);
  return nb::module_::import_("pith.arrays")
      .attr("on_memory")(memory_of(data, count * sizeof(float), nb::borrow(self.h)),
                         nb::make_tuple(count), "float32");
}

}  // namespace

void add_compressor(nb::module_& module) {
  nb::class_<Compressor>(module, "Compressor", nb::is_weak_referenceable())
      .def(nb::init<const std::string&>(), nb::arg("spec"))
      .def_prop_ro("spec", &Compressor::spec)
      .def_prop_ro("stats", &Compressor::stats)
      .def("save", &Compressor::save)
      .def("load", &Compressor::load, nb::arg("state"))
      .def("reset", &Compressor::reset)
      .def("scale", &Compressor::scale, nb::arg("factor"))
      .def("set_shape", &Compressor::set_shape, nb::arg("shapes"))
      .def("set_graph", &Compressor::set_graph, nb::arg("edges"))
      .def("residual", &Compressor::residual)
      .def("accumulator", &accumulator, nb::arg("count"))
      .def("__repr__", [](const Compressor& self) {
        return nb::str("pith.Compressor({!r})").format(self.spec());
      });
}

}  // namespace pith::python
