# The sanitizers of g++ 12 and clang 14 expect at most 28 random bits in mmap addresses ("unexpected memory mapping",
# or a crash before main). Where the kernel uses more, sanitized programs run without address randomisation.
with_preset_layout() {
  local preset=$1
  shift
  case "$preset" in
    asan | tsan)
      if layout_is_too_random; then
        setarch -R true 2>/dev/null || fail "the sanitizers of this compiler cannot run here: vm.mmap_rnd_bits is \
$(mmap_random_bits), more than 28, and switching address randomisation off for one program (setarch -R) is not allowed. \
As root: sysctl vm.mmap_rnd_bits=28"
        setarch -R "$@"
        return
      fi
      ;;
  esac
  "$@"
}

mmap_random_bits() {
  cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28
}

layout_is_too_random() {
  [ "$(mmap_random_bits)" -gt 28 ]
}
