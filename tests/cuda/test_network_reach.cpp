// What a device tells network hardware of its memory; on the stub driver, never on a GPU.
#include <unistd.h>

#include "tests/cuda/worker_calls.hpp"

namespace pith::cuda::test {

TEST_CASE("a dma-buf is of the whole allocation around scratch, and of device memory only") {
  const test::Device device;
  Queue queue(0);
  REQUIRE(queue.compute->network_memory() != 0);
  pith::MemoryExporter* const exporter = queue.compute->exporter();
  REQUIRE(exporter);
  constexpr std::size_t bytes = 100000;
  std::byte* const scratch = queue.compute->take_scratch(bytes);
  const pith::ExportedMemory exported = exporter->export_memory(scratch);
  CHECK(exported.descriptor >= 0);
  close(exported.descriptor);
  CHECK(exported.begin <= scratch);
  CHECK(scratch + bytes <= exported.begin + exported.bytes);
  CHECK(exported.bytes % static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) == 0);
  queue.compute->give_scratch(scratch, bytes);
  const std::byte host{};
  CHECK(exporter->export_memory(&host).descriptor == -1);
}

}  // namespace pith::cuda::test
