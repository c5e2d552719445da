// The binary interface of DLPack 1.x: what __dlpack__ returns in a capsule.
#pragma once

#include <cstdint>

namespace pith::python {

enum DLDeviceType : std::int32_t {
  dl_cpu = 1,
  dl_cuda = 2,
  dl_cuda_host = 3,
  dl_cuda_managed = 13,
};

enum DLTypeCode : std::uint8_t {
  dl_int = 0,
  dl_uint = 1,
  dl_float = 2,
  dl_bfloat = 4,
  dl_complex = 5,
  dl_bool = 6,
  dl_float8_e4m3fn = 10,
  dl_float8_e5m2 = 12,
};

struct DLTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in items; null: C order
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

struct DLManagedTensorVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};
constexpr std::uint64_t dl_read_only = 1;

}  // namespace pith::python
