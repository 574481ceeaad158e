@echo off
rem Opens the page in the browser, and installs the workbench first where it is missing.
rem Options are those of webui.py: run.bat --port 8000
setlocal
cd /d "%~dp0"
if not exist ".venv\.installed" (
    call install.bat
    if errorlevel 1 exit /b 1
)
".venv\Scripts\python.exe" webui.py --open %*
if errorlevel 1 (
    echo The page has ended. The lines above say why.
    pause
    exit /b 1
)
