#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

using namespace cuda;

Page& page() {
  static Page& shared = [&]() -> Page& {
    void* memory =
        mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::_Exit(3);
    return *static_cast<Page*>(memory);
  }();
  return shared;
}

void say(const char* name, const char* format, ...) {
  char value[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(value, sizeof value, format, arguments);
  va_end(arguments);
  char line[1200];
  const int length = std::snprintf(line, sizeof line, "%s: %s\n", name, value);
  const unsigned at = page().used.fetch_add(static_cast<unsigned>(length));
  if (at + static_cast<unsigned>(length) >= sizeof page().text) return;
  std::memcpy(page().text + at, line, static_cast<std::size_t>(length));
}

void stage(const std::string& what) {
  std::snprintf(page().stage, sizeof page().stage, "%s", what.c_str());
}

void give_up(const std::string& why) {
  say("gave up", "%s", why.c_str());
  std::_Exit(2);
}

const Driver& cu() {
  static const Driver& driver = [&]() -> const Driver& {
    auto& loaded = *new Driver;
    std::string why;
    if (!load_driver(loaded, why)) give_up(why);
    return loaded;
  }();
  return driver;
}

void* symbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? dlsym(library, name) : nullptr;
}

std::string describe(CUresult result) {
  return result == kSuccess ? "success" : cu().describe(result);
}

void must(CUresult result, const char* what) {
  if (result != kSuccess) give_up(std::string(what) + ": " + describe(result));
}

bool over_stub() { return cu().stub_launch != nullptr; }

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

bool wait_for(const std::function<bool()>& condition, int limit_ms) {
  const std::uint64_t limit = now_ns() + static_cast<std::uint64_t>(limit_ms) * 1'000'000;
  while (!condition()) {
    if (now_ns() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double high(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() * 99 / 100];
}

Gpu::Gpu() {
  stage("making the context");
  must(cu().init(0), "cuInit");
  must(cu().primary_ctx_retain(&context, 0), "cuDevicePrimaryCtxRetain");
  must(cu().ctx_set_current(context), "cuCtxSetCurrent");
  page().begun_ns = now_ns();
}

Words::Words(std::size_t count) {
  void* memory = nullptr;
  must(cu().host_alloc(&memory, 8 * count, kHostAllocPortable | kHostAllocDeviceMap),
       "cuMemHostAlloc");
  std::memset(memory, 0, 8 * count);
  memory_ = static_cast<std::uint64_t*>(memory);
}

CUstream new_stream(Priority priority) {
  int least = 0;
  int greatest = 0;
  must(cu().ctx_priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
  CUstream stream = nullptr;
  const int wanted = priority == Priority::highest ? greatest
                     : priority == Priority::high  ? std::max(-1, greatest)
                                                   : least;
  must(cu().stream_create(&stream, kStreamNonBlocking, wanted), "cuStreamCreateWithPriority");
  return stream;
}

namespace {

constexpr char kernels_ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry fact_touch(.param .u64 where, .param .u64 value)
{
  .reg .b64 %a, %v;
  ld.param.u64 %a, [where];
  ld.param.u64 %v, [value];
  st.release.sys.u64 [%a], %v;
  ret;
}
.visible .entry fact_serve(.param .u64 words, .param .u64 steps)
{
  .reg .pred %p;
  .reg .b64 %a, %n, %i, %v;
  ld.param.u64 %a, [words];
  ld.param.u64 %n, [steps];
  mov.u64 %i, 1;
again:
  ld.acquire.sys.u64 %v, [%a];
  setp.lt.u64 %p, %v, %i;
  @%p bra again;
  st.release.sys.u64 [%a+8], %i;
  add.u64 %i, %i, 1;
  setp.le.u64 %p, %i, %n;
  @%p bra again;
  ret;
}
)";

struct Arguments {
  CUdeviceptr words;
  std::uint64_t value;
};
std::uint64_t* words_of(CUdeviceptr address) {
  return reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(address));
}
void touch_on_host(void* raw) {
  const auto& arguments = *static_cast<Arguments*>(raw);
  std::atomic_ref(*words_of(arguments.words)).store(arguments.value);
}
void serve_on_host(void* raw) {
  const auto& arguments = *static_cast<Arguments*>(raw);
  std::uint64_t* words = words_of(arguments.words);
  for (std::uint64_t i = 1; i <= arguments.value; ++i) {
    while (std::atomic_ref(words[0]).load() < i) std::this_thread::yield();
    std::atomic_ref(words[1]).store(i);
  }
}

CUfunction function_of(CUlibrary library, const char* name) {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  must(cu().library_kernel(&kernel, library, name), "cuLibraryGetKernel");
  must(cu().kernel_function(&function, kernel), "cuKernelGetFunction");
  if (cu().function_load) must(cu().function_load(function), "cuFuncLoad");
  return function;
}

CUresult launch(CUstream stream, CUfunction function, Arguments arguments) {
  void* params[] = {&arguments.words, &arguments.value};
  return cu().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

}  // namespace

CUresult load_library(CUlibrary* library) {
  return cu().library_load(library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

Kernels::Kernels() {
  if (over_stub()) return;
  CUlibrary library = nullptr;
  must(load_library(&library), "cuLibraryLoadData");
  touch_ = function_of(library, "fact_touch");
  serve_ = function_of(library, "fact_serve");
}

CUresult Kernels::touch(CUstream stream, CUdeviceptr word, std::uint64_t value) const {
  const Arguments arguments{word, value};
  if (touch_) return launch(stream, touch_, arguments);
  return cu().stub_launch(stream, touch_on_host, &arguments, sizeof arguments);
}

CUresult Kernels::serve(CUstream stream, CUdeviceptr words, std::uint64_t steps) const {
  const Arguments arguments{words, steps};
  if (serve_) return launch(stream, serve_, arguments);
  return cu().stub_launch(stream, serve_on_host, &arguments, sizeof arguments);
}

Held::Held(Holder holder, const Kernels& kernels, Priority priority)
    : holder_(holder), kernels_(kernels), stream_(new_stream(priority)) {}

// A kernel is running and waits for its second step once it has answered the first.
void Held::hold() {
  let_go();
  words_[0] = 0;
  words_[1] = 0;
  if (holder_ == Holder::kernel) {
    must(kernels_.serve(stream_, words_.at(0), 2), "launching a kernel that waits");
    words_[0] = 1;
  } else {
    must(cu().write_value64(stream_, words_.at(1), 1, 0), "cuStreamWriteValue64");
    must(cu().wait_value64(stream_, words_.at(0), 2, kWaitValueGeq), "cuStreamWaitValue64");
  }
  value_ = 2;
  if (!wait_for([&] { return words_[1] == 1; }, 2000)) give_up("a stream does not begin to wait");
}

void Held::let_go() {
  if (value_ == 0) return;
  words_[0] = value_;
  value_ = 0;
  if (!wait_for([&] { return cu().stream_query(stream_) != kErrorNotReady; }, 1000)) {
    say("a held stream", "does not end when it is let go");
  }
}

Attempt::Attempt(CUcontext context, std::function<CUresult()> call)
    : thread_([this, context, call = std::move(call)] {
        cu().ctx_set_current(context);
        const std::uint64_t begin = now_ns();
        result_ = call();
        us_ = 1e-3 * static_cast<double>(now_ns() - begin);
        done_ = true;
      }) {}

bool Attempt::ended(int limit_ms) const {
  return wait_for([&] { return done_.load(); }, limit_ms);
}

std::string Attempt::result() const {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f us", us_);
  return std::string(text) + (result_ == kSuccess ? "" : ", " + describe(result_));
}

Helper::Helper(void (*body)()) : child_(fork()) {
  if (child_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  std::_Exit(0);
}

Helper::~Helper() {
  if (wait_for([&] { return waitpid(child_, nullptr, WNOHANG) == child_; }, 1000)) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void await(int flag, std::uint64_t value) {
  if (wait_for([&] { return page().flags[flag] >= value; }, 20000)) return;
  give_up("the other process did not get as far as " + std::to_string(flag));
}

}  // namespace pith::facts
