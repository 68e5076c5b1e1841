# CUDA libraries in Python wheels (nvidia-nccl-cu12, nvidia-cublas-cu12, ...), which machines with
# PyTorch have and machines with only a toolkit may lack. A wheel's folder has include/ and lib/;
# its libraries have names with a version alone: libnccl.so.2.

# The folders named "nvidia" in the search path of this machine's Python programs: of an active
# virtual environment first. CKPT_WHEELS, a list of such folders, comes before all.
function(ckpt_wheel_folders out)
  set(folders ${CKPT_WHEELS})
  set(print_folders "import os, sys
for folder in sys.path:
    folder = os.path.join(folder, 'nvidia')
    if os.path.isdir(folder):
        print(folder)")
  foreach(python "$ENV{VIRTUAL_ENV}/bin/python" python3)
    execute_process(COMMAND "${python}" -c "${print_folders}"
      RESULT_VARIABLE failed OUTPUT_VARIABLE found ERROR_QUIET)
    if(NOT failed)
      string(REPLACE "\n" ";" found "${found}")
      list(APPEND folders ${found})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(${out} "${folders}" PARENT_SCOPE)
endfunction()

# ckpt_find_in_wheels(NAME HEADER LIBRARY WHEEL...)
# Sets NAME_INCLUDE_DIR and NAME_LIBRARY, both of one wheel, or changes neither. HEADER and LIBRARY
# are file names; WHEEL names folders of wheels: nccl is <site-packages>/nvidia/nccl.
function(ckpt_find_in_wheels name header library)
  ckpt_wheel_folders(folders)
  foreach(folder ${folders})
    foreach(wheel ${ARGN})
      set(header_folder "${folder}/${wheel}/include")
      set(library_file "${folder}/${wheel}/lib/${library}")
      if(EXISTS "${header_folder}/${header}" AND EXISTS "${library_file}")
        set(${name}_INCLUDE_DIR "${header_folder}" PARENT_SCOPE)
        set(${name}_LIBRARY "${library_file}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()
