#include "startup/pmix_client.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace pith {

namespace {

// The part of the PMIx ABI (standard version 4) that is used here, declared by hand so that a build
// needs no PMIx headers.
constexpr int success = 0;
constexpr std::uint8_t to_all = 3;  // PMIX_GLOBAL
constexpr std::uint16_t is_bool = 1;
constexpr std::uint16_t is_string = 3;
constexpr std::uint16_t is_int = 6;

struct Process {
  char job[256];
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  union {
    char* text;
    int number;
    bool flag;
    char room[24];  // size of the largest member
  } data;
};

struct Option {
  char key[512];
  std::uint32_t flags;
  Value value;
};
static_assert(sizeof(Value) == 32 && sizeof(Option) == 552, "as libpmix has them");

Option timeout_of(double seconds) {
  Option option{};
  std::strcpy(option.key, "pmix.timeout");
  option.value.type = is_int;
  option.value.data.number = static_cast<int>(std::ceil(std::max(1.0, seconds)));
  return option;
}

}  // namespace

struct PmixClient::Library {
  int (*init)(Process*, Option*, std::size_t) = nullptr;
  int (*finalize)(const Option*, std::size_t) = nullptr;
  int (*put)(std::uint8_t, const char*, Value*) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process*, std::size_t, const Option*, std::size_t) = nullptr;
  int (*get)(const Process*, const char*, const Option*, std::size_t, Value**) = nullptr;
  const char* (*text_of)(int) = nullptr;

  static Expected<Library*> load();
  Error error(int status, const std::string& what) const {
    return {Code::system, fmt::format("PMIx: {}: {}", what, text_of(status))};
  }
};

Expected<PmixClient::Library*> PmixClient::Library::load() {
  static Library library;
  static const Error why_not = []() -> Error {
    void* handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
      return {Code::system, fmt::format("PMIx, which the launcher speaks, cannot be loaded: {}; "
                                        "PITH_RANK, PITH_SIZE and PITH_ROOT do without",
                                        dlerror())};
    }
    Error missing;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
      if (!function) {
        missing = Error(Code::system, fmt::format("libpmix.so.2 has no function {}", name));
      }
    };
    find(library.init, "PMIx_Init");
    find(library.finalize, "PMIx_Finalize");
    find(library.put, "PMIx_Put");
    find(library.commit, "PMIx_Commit");
    find(library.fence, "PMIx_Fence");
    find(library.get, "PMIx_Get");
    find(library.text_of, "PMIx_Error_string");
    return missing;
  }();
  if (why_not) return why_not;
  return &library;
}

Expected<PmixClient> PmixClient::open() {
  const Expected<Library*> library = Library::load();
  if (!library) return library.error();
  Process self{};
  const int status = (*library)->init(&self, nullptr, 0);
  if (status != success) return (*library)->error(status, "the launcher cannot be reached");
  PmixClient client;
  client.library_ = *library;
  client.job_ = self.job;
  return client;
}

PmixClient::PmixClient(PmixClient&& other) noexcept
    : library_(std::exchange(other.library_, nullptr)), job_(std::move(other.job_)) {}

PmixClient& PmixClient::operator=(PmixClient&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(job_, other.job_);
  return *this;
}

PmixClient::~PmixClient() {
  if (library_) library_->finalize(nullptr, 0);
}

Error PmixClient::put(const std::string& key, const std::string& value) {
  std::string text = value;
  Value given{};
  given.type = is_string;
  given.data.text = text.data();
  int status = library_->put(to_all, key.c_str(), &given);
  if (status == success) status = library_->commit();
  return status == success ? Error() : library_->error(status, fmt::format("put {}", key));
}

Error PmixClient::fence(double timeout_s) {
  Option options[2] = {timeout_of(timeout_s), {}};
  std::strcpy(options[1].key, "pmix.collect");
  options[1].value.type = is_bool;
  options[1].value.data.flag = true;
  const int status = library_->fence(nullptr, 0, options, 2);
  if (status == success) return {};
  const Error cause = library_->error(status, "waiting for all ranks of the job");
  return {Code::remote, cause.message()};
}

Expected<std::string> PmixClient::get(int rank, const std::string& key, double timeout_s) {
  Process from{};
  job_.copy(from.job, sizeof from.job - 1);
  from.rank = static_cast<std::uint32_t>(rank);
  const Option timeout = timeout_of(timeout_s);
  Value* got = nullptr;
  const int status = library_->get(&from, key.c_str(), &timeout, 1, &got);
  if (status != success || !got) {
    const Error cause = library_->error(status, fmt::format("get {} of rank {}", key, rank));
    return Error(Code::remote, cause.message(), rank);
  }
  const std::string text = got->type == is_string && got->data.text ? got->data.text : "";
  if (got->type == is_string) std::free(got->data.text);
  std::free(got);
  return text;
}

}  // namespace pith
