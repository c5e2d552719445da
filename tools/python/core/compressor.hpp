// A compressor as Python sees it.
#pragma once

#include "errors.hpp"
#include "nanobind/nanobind.h"
#include "pith/pith.h"

namespace pith::python {

class Compressor {
 public:
  explicit Compressor(const std::string& spec);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  pithCompressor_t handle() const { return handle_; }
  const std::string& spec() const { return spec_; }

  // The statistics of this rank's last call, as a pith.CompressorStats.
  nb::object stats() const;
  nb::bytes save() const;
  // Adds the state to this one.
  void load(const nb::object& state);
  void reset();
  void scale(float factor);
  // The shapes of the tensors that the vector consists of, each a sequence of integers.
  void set_shape(const nb::iterable& shapes);
  void set_graph(const nb::iterable& edges);
  // A copy, as an array of float32.
  nb::object residual() const;
  // The address of `count` float32; afterwards reset() is refused, which would free them.
  void* accumulator(std::size_t count);

 private:
  std::string spec_;
  pithCompressor_t handle_ = nullptr;
  bool lends_memory_ = false;
};

void add_compressor(nb::module_& module);

}  // namespace pith::python
