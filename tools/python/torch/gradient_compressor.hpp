// A compressor of libpith for one bucket of gradients.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pith/pith.h"

namespace pith_torch {

// Shared by its calls, so that it outlives them.
class GradientCompressor {
 public:
  explicit GradientCompressor(const std::string& spec);
  ~GradientCompressor();
  GradientCompressor(const GradientCompressor&) = delete;
  GradientCompressor& operator=(const GradientCompressor&) = delete;

  pithCompressor_t get() const { return compressor_; }
  // float32, one for each element; empty before the first call.
  at::Tensor residual() const;
  // The shapes of the tensors that the bucket consists of; before the first call.
  void set_shape(const std::vector<std::vector<int64_t>>& shapes);
  // Multiplies the residual.
  void scale(double factor);
  // Statistics of this rank's last call.
  std::map<std::string, double> stats() const;
  std::string algorithm() const;

 private:
  pithCompressorStats_t read_stats() const;

  pithCompressor_t compressor_ = nullptr;
};

}  // namespace pith_torch
