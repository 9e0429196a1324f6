#include "driver/recording_driver.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "cuvmm/error.hpp"
#include "driver/format.hpp"

namespace cuvmm::driver {

namespace {

std::string format_uuid(const CUuuid& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The text of what the driver wrote through that argument; empty if it writes nothing through it.
template <class T>
std::string written_through(std::string_view name, const T& argument) {
  if constexpr (!is_written<T>) {
    return {};
  } else {
    using Value = std::remove_pointer_t<T>;
    if (argument == nullptr || is_list(name)) return {};
    if constexpr (std::is_same_v<Value, char>)
      return format_text(argument);
    else if constexpr (std::is_same_v<Value, CUuuid>)
      return format_uuid(*argument);
    else if constexpr (std::is_same_v<Value, CUmemAllocationProp>)
      return format_properties(*argument);
    else if constexpr (std::is_floating_point_v<Value>)
      return fmt::format("{}", *argument);
    else
      return format_argument(name, *argument);
  }
}

// The descriptor that an export wrote; fabric handles are not shown.
std::string exported_descriptor(const void* handle, bool is_descriptor) {
  if (!is_descriptor) return "{64 bytes}";
  int descriptor = -1;
  std::memcpy(&descriptor, handle, sizeof descriptor);
  return fmt::format("descriptor {}", descriptor);
}

template <class T>
std::string bytes_as(const void* data) {
  T value{};
  std::memcpy(&value, data, sizeof value);
  return std::is_same_v<T, std::uint64_t> ? fmt::format("{:#x}", value) : fmt::format("{}", value);
}

// The value of a pointer attribute; for those that are truth values the first byte, which they all have.
std::string pointer_attribute(const void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return bytes_as<std::uint64_t>(data);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return bytes_as<int>(data);
    default:
      return bytes_as<unsigned char>(data);
  }
}

template <EntryPoint entry, class... Arguments>
std::string format_written(const Arguments&... arguments) {
  [[maybe_unused]] const auto all = std::tie(arguments...);
  if constexpr (entry == EntryPoint::cuMemExportToShareableHandle ||
                entry == EntryPoint::cuMemPoolExportToShareableHandle) {
    return "shareable_handle = " +
           exported_descriptor(std::get<0>(all), std::get<2>(all) == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  } else if constexpr (entry == EntryPoint::cuMemGetHandleForAddressRange) {
    return "handle = " + exported_descriptor(std::get<0>(all), true);
  } else if constexpr (entry == EntryPoint::cuPointerGetAttribute) {
    return "data = " + pointer_attribute(std::get<0>(all), std::get<1>(all));
  } else {
    std::string text;
    [[maybe_unused]] std::size_t index = 0;
    [[maybe_unused]] const auto names = split_names(info(entry).argument_names);
    [[maybe_unused]] const auto append = [&](const std::string& value) {
      if (!value.empty()) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", names[index], value);
      ++index;
    };
    (append(written_through(names[index], arguments)), ...);
    return text;
  }
}

unsigned this_thread_number() noexcept {
  static std::atomic<unsigned> last = 0;
  thread_local const unsigned number = ++last;
  return number;
}

[[noreturn]] void refuse_file(const std::string& path, int error) {
  Failure failure;
  failure.kind = error == EMFILE || error == ENFILE ? ErrorKind::out_of_descriptors : ErrorKind::invalid_use;
  failure.call = "append_to_file";
  failure.arguments = fmt::format("path = \"{}\"", path);
  failure.rule = fmt::format("The file for the recording cannot be opened: {}", std::strerror(error));
  failure.way_out = "Name a file in a folder that exists and that this process may write to";
  raise(failure);
}

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

}  // namespace

LineSink append_to_file(const std::string& path) {
  const int number = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (number < 0) refuse_file(path, errno);
  return [file = std::make_shared<Descriptor>(number), text = std::string()](std::string_view line) mutable {
    text.assign(line);
    text += '\n';
    std::string_view rest = text;
    while (!rest.empty()) {
      const ssize_t count = ::write(file->number(), rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;  // a full disk must not change what the driver answers
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
  };
}

RecordingDriver::RecordingDriver(std::shared_ptr<Interface> next, LineSink sink)
    : Decorator(std::move(next)), sink_(std::move(sink)) {}

template <EntryPoint entry, class... Arguments>
CUresult RecordingDriver::record(Arguments... arguments) {
  const std::uint64_t sequence = next_sequence_.fetch_add(1, std::memory_order_relaxed);
  const std::string passed = format_arguments<entry>(arguments...);  // before the call: the driver may write over it
  const CUresult result = forward<entry>(arguments...);
  write(sequence, entry, passed, result, result == CUDA_SUCCESS ? format_written<entry>(arguments...) : std::string());
  return result;
}

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  CUresult RecordingDriver::name parameters {                          \
    return record<EntryPoint::name> arguments;                         \
  }
#include "driver/entry_points.def"

void RecordingDriver::write(std::uint64_t sequence, EntryPoint entry, const std::string& arguments, CUresult result,
                            const std::string& written) {
  const std::string line =
      fmt::format("{} pid {} thread {} {}({}) = {}{}{}", sequence, ::getpid(), this_thread_number(),
                  driver::name(entry), arguments, format_result(result), written.empty() ? "" : " -> ", written);
  const std::lock_guard lock(sink_mutex_);
  sink_(line);
}

}  // namespace cuvmm::driver
